"""Spaces of AutoTVM's configs as TVM 0.6 numbered them."""

from __future__ import annotations

from schedules.config import ConfigEntity
from schedules.space import ConfigSpace

_get = ConfigSpace.get


def get(self: ConfigSpace, index: int) -> ConfigEntity:
    """Return the config at an index; indices past the last one wrap around to the first."""
    return _get(self, index % self.range_length)
