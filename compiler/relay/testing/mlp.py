"""Multilayer perceptron with two hidden layers."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from ..expr import var
from ..op import nn
from .init import function_of, workload_of


def get_net(
    batch_size: int,
    num_classes: int = 10,
    image_shape: Sequence[int] = (1, 28, 28),
    dtype: str = "float32",
) -> relax.Function:
    """Build a network with layers of 128, 64 and `num_classes` units."""
    data = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    value = nn.batch_flatten(data)
    for index, units in enumerate((128, 64, num_classes), 1):
        value = nn.dense(value, var(f"fc{index}_weight"), units=units)
        value = nn.bias_add(value, var(f"fc{index}_bias"), axis=-1)
        if index < 3:
            value = nn.relu(value)
    net = nn.softmax(data=value)
    return function_of(net)


get_workload = workload_of(get_net)
