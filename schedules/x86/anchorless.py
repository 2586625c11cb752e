"""The rules for functions without anchor on x86, most specific first."""

from __future__ import annotations

from .injective import Injective
from .pooling import Pooling
from .row_ops import RowOps
from .stage_by_stage import Opaque, StageByStage

RULES = (Injective(), Pooling(), RowOps(), StageByStage(), Opaque())
