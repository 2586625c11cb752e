"""Operator definition: the record of a Relay operator, and the values of its facts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .layout_query import Rule as LayoutRule
    from .quantization import IntegerForm

ELEMENTWISE, BROADCAST, INJECTIVE, REDUCTION, FUSABLE, TUPLE, OPAQUE = 0, 1, 2, 3, 4, 7, 8
"""How operators fuse, as TVM numbers it: an operator of a later kind takes less before it."""

ALWAYS, FOLLOW, NEVER = 0, 1, 2
"""Whether ToMixedPrecision computes an operator in the short type, as TVM numbers it."""

REQUIRED = inspect.Parameter.empty

Builder = Callable[..., Any]


@dataclass(frozen=True)
class Operator:
    """One operator.

    Attributes
    ----------
    name : str
        The registered name, e.g. "nn.conv2d".
    function : callable
        Makes the Relax expression. Its parameters are the operands and the attributes.
    operands : tuple of str
        Names of the parameters that are operands of a call, in the call's order.
    attributes : dict of str to object
        Attribute name to its default in Relay's text and JSON; `REQUIRED` where it has none.
    renamed : dict of str to str
        Attribute names that differ from the function's parameter.
    ignored : frozenset of str
        Attributes of the call that repeat an operand or say nothing about the result.
    results : int
        How many results it has whatever its operands are; 0 where their types decide.
    why_not : str
        Why the operator does not apply; "" if it does.
    how : str
        How it becomes Relax: "direct", "composed", "TOPI" or "TE".
    pattern : int
        How it fuses: `ELEMENTWISE` to `OPAQUE`.
    precision : int, optional
        `ALWAYS`, `FOLLOW` or `NEVER` of ToMixedPrecision; None where nothing says.
    dtype_attribute : str
        The attribute that names the dtype that the operator computes in.
    layout : callable, optional
        Which layouts it works in (`layout_rules`); None where values keep theirs.
    keeps_order : bool
        Whether the result has the elements of the data, in their order.
    kernel_layouts : dict of str to str
        The kernel layout that "default" means to ConvertLayout, by the layout of the data.
    quantized : IntegerForm, optional
        What it is between dequantize and quantize (`quantization`).
    macs : callable, optional
        Multiplications of a call, of its attributes and the shapes of data, weight and result.
    fast : str
        The operator that FastMath puts in its place.
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
