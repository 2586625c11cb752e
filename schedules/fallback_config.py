"""The config of a template that runs without a record: its knobs are set by the template itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .config import InstantiationError, Knob, SplitEntity
from .knob_candidates import VirtualAxis, axis_of, divisors
from .space import ConfigSpace


class FallbackSplitError(InstantiationError, RuntimeError):
    """A split that can't be made within the limits that its template gives."""


class FallbackConfigEntity(ConfigSpace):
    """A config whose knobs are their first candidates, unless the template says otherwise.

    cfg.define_split("tile_x", x, num_outputs=3)
    if cfg.is_fallback:
        cfg.fallback_split("tile_x", [-1, 8, 4])
        cfg["tile_y"] = SplitEntity([-1, 16])
    """

    is_fallback = True

    def __init__(self) -> None:
        super().__init__()
        self._set: dict[str, Knob] = {}
        self._extents: dict[str, int] = {}

    def __getitem__(self, name: str) -> Knob:
        return self._set[name] if name in self._set else super().__getitem__(name)

    def __setitem__(self, name: str, entity: Knob) -> None:
        """Set a knob; defining it afterwards leaves it as it is."""
        self._set[name] = entity

    def define_split(self, name: str, axis: Any, *args: Any, **options: Any) -> list[VirtualAxis]:
        """As in `ConfigSpace`."""
        self._extents[name] = axis_of(axis).length
        return super().define_split(name, axis, *args, **options)

    def fallback_split(self, name: str, constraints: Sequence[int]) -> None:
        """Set a split's factors, the innermost first: the largest divisors within their limits.

        `constraints`: the most that each factor may be; -1 for any. Raises FallbackSplitError:
        there is no such split, it has another number of factors, or nothing fits a limit.
        """
        if name not in self._extents:
            raise FallbackSplitError(f"knob {name} is no split of this template")
        count = len(self.space_map[name][0].size)  # type: ignore[union-attr]
        if len(constraints) != count:
            raise FallbackSplitError(f"split {name} has {count} factors, not {len(constraints)}")
        left, size = self._extents[name], []
        for most in reversed(constraints):
            fitting = [each for each in divisors(left) if most == -1 or each <= most]
            if not fitting:
                raise FallbackSplitError(f"split {name}: no factor of {left} is at most {most}")
            size.append(fitting[-1])
            left //= fitting[-1]
        self[name] = SplitEntity(tuple(reversed(size)))
