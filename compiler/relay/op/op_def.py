"""Operator records, and constants for their fields."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .layout_query import Rule as LayoutRule
    from .quantization import IntegerForm

ELEMENTWISE, BROADCAST, INJECTIVE, REDUCTION, FUSABLE, TUPLE, OPAQUE = 0, 1, 2, 3, 4, 7, 8
"""Fusion patterns, numbered as in TVM; higher values can be fused with less."""

ALWAYS, FOLLOW, NEVER = 0, 1, 2
"""ToMixedPrecision categories, numbered as in TVM."""

REARRANGEMENT: dict[str, Any] = {"how": "direct", "pattern": INJECTIVE, "precision": FOLLOW}
"""Record fields shared by operators that move elements, with one Relax operator each."""

REQUIRED = inspect.Parameter.empty

Builder = Callable[..., Any]


@dataclass(frozen=True)
class Operator:
    """Record of an operator."""

    name: str  # the registered name, e.g. "nn.conv2d"
    # Builds the Relax expression. Its parameters are the operands and the attributes.
    function: Builder
    operands: tuple[str, ...]  # names of the parameters that are operands, in call order
    # Maps attribute names to defaults in Relay's text and JSON; `REQUIRED` if there is none
    attributes: Mapping[str, Any] = field(default_factory=dict)
    # Attribute names that differ from the function's parameter names
    renamed: Mapping[str, str] = field(default_factory=dict)
    # Call attributes that repeat an operand or do not affect the result
    ignored: frozenset[str] = frozenset()
    results: int = 0  # number of results if it is fixed; 0 if it depends on the operand types
    why_not: str = ""  # reason why the operator is unsupported; "" if it is supported
    how: str = "composed"  # kind of lowering to Relax: "direct", "composed", "TOPI" or "TE"
    pattern: int = OPAQUE  # fusion pattern: `ELEMENTWISE` to `OPAQUE`
    # ToMixedPrecision category: `ALWAYS`, `FOLLOW` or `NEVER`; None if it has none
    precision: int | None = None
    dtype_attribute: str = ""  # attribute that names the compute dtype
    # Layout rule (`layout_rules`); None if the operator's operands keep their layouts
    layout: LayoutRule | None = None
    keeps_order: bool = False  # whether the result has the data's elements in the same order
    # Maps the data layout to the kernel layout that ConvertLayout uses for "default"
    kernel_layouts: Mapping[str, str] = field(default_factory=dict)
    # Integer form between dequantize and quantize (`quantization`)
    quantized: IntegerForm | None = None
    # Multiply-accumulates of a call, from its attributes and the shapes of data, weight, result
    macs: Callable[..., int] | None = None
    fast: str = ""  # operator that replaces it in FastMath

    def __str__(self) -> str:
        return self.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)
