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

REQUIRED = inspect.Parameter.empty

Builder = Callable[..., Any]


@dataclass(frozen=True)
class Operator:
    """Record of an operator.

    Attributes
    ----------
    name : str
        The registered name, e.g. "nn.conv2d".
    function : callable
        Builds the Relax expression. Its parameters are the operands and the attributes.
    operands : tuple of str
        Names of the parameters that are operands, in call order.
    attributes : dict of str to object
        Maps attribute names to defaults in Relay's text and JSON; `REQUIRED` if there is none.
    renamed : dict of str to str
        Attribute names that differ from the function's parameter names.
    ignored : frozenset of str
        Call attributes that repeat an operand or do not affect the result.
    results : int
        Number of results if it is fixed; 0 if it depends on the operand types.
    why_not : str
        Reason why the operator is unsupported; "" if it is supported.
    how : str
        Kind of lowering to Relax: "direct", "composed", "TOPI" or "TE".
    pattern : int
        Fusion pattern: `ELEMENTWISE` to `OPAQUE`.
    precision : int, optional
        ToMixedPrecision category: `ALWAYS`, `FOLLOW` or `NEVER`; None if it has none.
    dtype_attribute : str
        Attribute that names the compute dtype.
    layout : callable, optional
        Layout rule (`layout_rules`); None if the operator's operands keep their layouts.
    keeps_order : bool
        Whether the result has the data's elements in the same order.
    kernel_layouts : dict of str to str
        Maps the data layout to the kernel layout that ConvertLayout uses for "default".
    quantized : IntegerForm, optional
        Integer form between dequantize and quantize (`quantization`).
    macs : callable, optional
        Multiply-accumulates of a call, from its attributes and the shapes of data, weight, result.
    fast : str
        Operator that replaces it in FastMath.
    """

    name: str
    function: Builder
    operands: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    ignored: frozenset[str] = frozenset()
    results: int = 0
    why_not: str = ""
    how: str = "composed"
    pattern: int = OPAQUE
    precision: int | None = None
    dtype_attribute: str = ""
    layout: LayoutRule | None = None
    keeps_order: bool = False
    kernel_layouts: Mapping[str, str] = field(default_factory=dict)
    quantized: IntegerForm | None = None
    macs: Callable[..., int] | None = None
    fast: str = ""

    def __str__(self) -> str:
        return self.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)
