"""The rules for functions without anchor on x86, most specific first."""

from __future__ import annotations

from .injective import Injective
from .pooling import Pooling
from .row_ops import RowOps
from .stage_by_stage import Empty, Opaque, StageByStage

RULES = (Empty(), Injective(), Pooling(), RowOps(), StageByStage(), Opaque())
