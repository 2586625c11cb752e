"""The rules for functions without anchor on x86, most specific first."""

from __future__ import annotations

from .injective import Injective
from .row_ops import RowOps

RULES = (Injective(), RowOps())
