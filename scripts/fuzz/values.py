"""Values of inputs: plain ones, and the hostile ones of each dtype."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .draft import Operand

PLAIN, SPECIAL, EXTREME, OUTSIDE, ZERO = "plain", "special", "extreme", "outside", "zero divisor"


def plain(
    rng: np.random.Generator, dtype: str, shape: tuple[int, ...], role: str = "data"
) -> np.ndarray:
    """Small values that suit the role."""
    kind = np.dtype(dtype).kind
    if kind == "b":
        return np.asarray(rng.random(shape) < 0.5)
    if kind == "f":
        array = np.asarray(rng.normal(size=shape))
        if rng.random() < 0.2:  # ties, halves and zeros
            array = np.round(array * 2) / 2
        if role == "unit":
            array = np.tanh(array)
        elif role == "positive":
            array = np.abs(array) + 0.1
        elif role == "divisor":
            array = np.where(array == 0, 1, array)
        return np.asarray(array, dtype)
    low = 0 if kind == "u" else -6
    whole = np.asarray(rng.integers(low, 7, shape))
    if role in ("divisor", "positive"):
        whole = np.where(whole <= 0, rng.integers(1, 7, shape), whole)
    return whole.astype(dtype)


def special(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    """NaN, infinities, zeros of both signs and denormals among values of normal size."""
    if array.dtype.kind != "f":
        return array
    info = np.finfo(array.dtype)
    tiny = [info.tiny / 4, -info.tiny / 2, info.smallest_subnormal, info.eps]
    pool = [np.nan, np.inf, -np.inf, 0, -0.0, 1, -1, 0.5, -0.5, 2.5, 1e-3, -30, 100, *tiny]
    return _sprinkle(rng, array, np.array(pool, array.dtype))


def extreme(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    """The largest values of a dtype, and values next to where conversions change."""
    if array.dtype.kind == "b":
        return array
    if array.dtype.kind == "f":
        most = float(np.finfo(array.dtype).max)
        pool = np.array([most, -most, most / 2, -most / 3, most**0.5, -(most**0.25)], array.dtype)
    else:
        least, most = int(np.iinfo(array.dtype).min), int(np.iinfo(array.dtype).max)
        pool = np.array([least, most, least + 1, most - 1, most // 2, 0, 1], array.dtype)
    return _sprinkle(rng, array, pool)


def _sprinkle(rng: np.random.Generator, array: np.ndarray, pool: np.ndarray) -> np.ndarray:
    """Some elements replaced, more of them in some cases than in others."""
    share = rng.choice([0.05, 0.3, 1.0])
    return np.where(rng.random(array.shape) < share, rng.choice(pool, array.shape), array).astype(
        array.dtype
    )


def outside(rng: np.random.Generator, array: np.ndarray, operand: Operand) -> np.ndarray:
    """Indices of which one is out of range, slightly or by far."""
    info = np.iinfo(array.dtype)
    pool = [operand.high + 1, operand.high + 7, 10**9]
    if info.min < 0:
        pool += [operand.low - 1, -(10**9), operand.low - 5]
    pool = [value for value in pool if info.min <= value <= info.max]
    if not array.size or not pool:
        return array
    changed = array.copy()
    changed.reshape(-1)[int(rng.integers(array.size))] = int(rng.choice(pool))
    return changed


def feeds_of(
    rng: np.random.Generator, inputs: Mapping[str, Operand], drawn: Mapping[str, np.ndarray]
) -> dict[str, dict[str, np.ndarray]]:
    """Sets of inputs by kind: those of the draft, and the hostile ones that differ from them."""
    base = {name: drawn[name] for name in inputs}
    sets = {PLAIN: base}
    for kind, change in ((SPECIAL, special), (EXTREME, extreme)):
        changed = {
            name: change(rng, array) if inputs[name].role == "data" else array
            for name, array in base.items()
        }
        if any(changed[name] is not base[name] for name in base):
            sets[kind] = changed
    indices = [name for name, operand in inputs.items() if operand.role == "index"]
    if indices:
        name = str(rng.choice(indices))
        sets[OUTSIDE] = {**base, name: outside(rng, base[name], inputs[name])}
    divisors = [n for n, o in inputs.items() if o.role == "divisor" and base[n].dtype.kind in "iu"]
    if divisors:
        name = str(rng.choice(divisors))
        if base[name].size:
            changed = base[name].copy()
            changed.reshape(-1)[int(rng.integers(changed.size))] = 0
            sets[ZERO] = {**base, name: changed}
    return sets
