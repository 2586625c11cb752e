"""Executors run on zeros where a script has not set an input, as TVM's did: many only measure.

Arguments by a name that a function lacks are left out: importers drop inputs that nothing reads.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..relay.calling_convention import Interface
from ..runtime.executor import GraphExecutor
from .patches import Patches

logger = logging.getLogger("baton.legacy")
_require_all_set = GraphExecutor._require_all_set
_ordered = Interface.ordered


def _fill_with_zeros(self: Any) -> None:
    for index, (info, value) in enumerate(zip(self._infos, self._bound, strict=True)):
        if value is None and all(isinstance(extent, int) for extent in info.shape):
            self._copy_in(index, np.zeros(info.shape, "float32").astype(info.dtype))
    _require_all_set(self)


def _without_unknown(self: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    unknown = [name for name in kwargs if name not in self.names]
    if unknown:
        logger.warning("the function has no parameter %s: left out", ", ".join(unknown))
    return _ordered(self, args, {name: kwargs[name] for name in kwargs if name in self.names})


def change(patches: Patches) -> None:
    """Let inputs that nobody sets be zeros, and leave out arguments that nothing takes."""
    patches.set(Interface, "ordered", _without_unknown)
    patches.set(GraphExecutor, "_require_all_set", _fill_with_zeros)
