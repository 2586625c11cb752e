"""The rules for functions without anchor on x86, most specific first."""

from .fallback import Empty, Opaque, StageByStage
from .injective import Injective
from .reduction.pooling import Pooling
from .reduction.row_ops import RowOps

RULES = (Empty(), Injective(), Pooling(), RowOps(), StageByStage(), Opaque())
