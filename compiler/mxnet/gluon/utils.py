"""`gluon.utils`: a batch cut into parts, one for each device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compiler.errors import BlockArgumentError

from .. import np
from ..array.ndarray import ndarray
from ..autograd import training_only
from ..device import Device


def split_data(
    data: Any, num_slice: int, batch_axis: int = 0, even_split: bool = True
) -> list[ndarray]:
    """Parts along an axis; where they are not equal, the first ones are longer by 1.

    With `even_split` they must be equal. Raises BlockArgumentError: the axis is shorter than the
    number of parts, or no multiple of it where it must be.
    """
    array = np.asarray(data)
    extent = array.shape[batch_axis]
    if extent < num_slice or (even_split and extent % num_slice):
        raise BlockArgumentError(
            f"data of shape {array.shape} can't be split into {num_slice} "
            f"{'equal ' if even_split else ''}parts along axis {batch_axis}"
        )
    return np.array_split(array, num_slice, batch_axis)


def split_and_load(
    data: Any,
    ctx_list: Sequence[Device] | None = None,
    batch_axis: int = 0,
    even_split: bool = True,
    device_list: Sequence[Device] | None = None,
) -> list[ndarray]:
    """`split_data` into as many parts as there are devices, each part on one of them."""
    devices = list(ctx_list or device_list or ())
    if not devices:
        raise BlockArgumentError("split_and_load needs at least one device")
    parts = split_data(data, len(devices), batch_axis, even_split)
    return [part.to_device(device) for part, device in zip(parts, devices)]


clip_global_norm = training_only("gluon.utils.clip_global_norm()")
