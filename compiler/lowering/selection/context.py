"""Lowering context of one operator."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tvm import relax
from tvm.target import Target

from schedules import strategy
from schedules.config import ConfigEntity

from .layout_cache import LayoutMap


@dataclass(frozen=True)
class LoweringContext:
    """Lowering context of one operator: builder, layouts, target and records."""

    builder: relax.BlockBuilder  # of the function that the operator is in
    layouts: LayoutMap  # of that function's values
    target: Target
    query: strategy.Query | None  # looks up AutoTVM records in the active dispatch contexts
    disabled: Collection[str] = ()  # names of implementations that must not be chosen
    # What the function's old variables are bound to
    definitions: Mapping[relax.Var, relax.Expr] = field(default_factory=dict)
    may_round: bool = False  # whether weights may be rounded to float16

    def choose(
        self, operator: str, workload: Any
    ) -> tuple[strategy.Implementation, ConfigEntity] | None:
        """The implementation of a workload and its config; None if the library has none."""
        return strategy.select(operator, workload, self.target, self.query, self.disabled)

    def asking(self, query: strategy.Query | None) -> LoweringContext:
        """This context with another record query."""
        return replace(self, query=query)
