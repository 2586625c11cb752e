"""`tvm.topi.random`, which TVM has no more: the kernels of `relay.random`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from tvm import te, tirx

from ...relay.op import random
from .computed import compute


def threefry_generate(gen: Any, out_shape: Sequence[int]) -> list[Any]:
    """The next key, and random words of 64 bits."""
    return list(compute(random.threefry_generate, gen, tuple(map(int, out_shape))))


def threefry_split(gen: Any) -> list[Any]:
    """Two keys."""
    return list(compute(random.threefry_split, gen))


def uniform(gen: Any, low: Any, high: Any, out_shape: Sequence[int], out_dtype: str) -> list[Any]:
    """The next key, and numbers from `low` up to `high`, all equally likely."""
    size = tuple(map(int, out_shape))
    return list(compute(random.uniform, gen, size, out_dtype, low=low, high=high))


def normal(gen: Any, mean: Any, scale: Any, out_shape: Sequence[int], out_dtype: str) -> list[Any]:
    """The next key, and numbers of a normal distribution."""
    size = tuple(map(int, out_shape))
    return list(compute(random.normal, gen, size, out_dtype, mean=mean, scale=scale))


def multinomial(gen: Any, probs: Any, num_samples: int) -> list[Any]:
    """The next key, and classes drawn with the given probabilities."""
    return list(compute(random.multinomial, gen, probs, num_samples))


def threefry_test_wrapping(target: Any, device: Any) -> bool:
    """Whether sums of words of 64 bits wrap around on a device, as the generator needs."""
    from ..te.driver import build
    from ..te.schedule import create_schedule

    words = te.placeholder((1,), "uint64", name="words")
    sums = te.compute((1,), lambda i: words[i] + tirx.const(1, "uint64"), name="sums")
    schedule = create_schedule(sums.op)
    function = build(schedule, [words, sums], target)
    given = tvm.runtime.tensor(np.array([2**64 - 1], "uint64"), device)
    result = tvm.runtime.tensor(np.ones(1, "uint64"), device)
    function(given, result)
    return int(result.numpy()[0]) == 0
