"""Spaces of AutoTVM's configs as TVM 0.6 numbered them."""

from __future__ import annotations

from schedules.config import ConfigEntity
from schedules.space import ConfigSpace

_get = ConfigSpace.get


def get(self: ConfigSpace, index: int) -> ConfigEntity:
    """The config of an index; behind the last one they start again from the first."""
    return _get(self, index % self.range_length)
