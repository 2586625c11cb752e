"""Lowering context of one operator."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tvm import relax
from tvm.target import Target

from schedules import strategy
from schedules.config import ConfigEntity

from ...primfuncs import fusion_pattern
from ...primfuncs.kernel_operators import OPERATORS
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

    def call(
        self, name: str, compute: Callable[..., Any], *operands: relax.Expr, operators: str = ""
    ) -> relax.Call:
        """A call of a kernel, not yet emitted; element-wise operators may fuse with its result."""
        attrs: dict[str, Any] = {fusion_pattern.ATTRIBUTE: fusion_pattern.OUT_ELEMENTWISE_FUSABLE}
        if operators:
            attrs[OPERATORS] = operators
        return self.builder.call_te(
            compute, *operands, primfunc_name_hint=name, primfunc_attrs=attrs
        )

    def gather(
        self, name: str, shape: Sequence[int], dtype: str, block: int, images: relax.Call
    ) -> relax.Var:
        """Emit images of that plain shape, in blocks of channels: a variable of `layouts`."""
        var = relax.Var(name, relax.TensorType(shape, dtype))
        self.layouts.define(var, block, self.builder.emit(images))
        return var
