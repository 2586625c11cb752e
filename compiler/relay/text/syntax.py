"""Syntax tree of Relay text, created by the readers and printed by the writer.

This is not a graph IR: `to_relax` converts it to a Relax module, `from_relax` is the inverse.
Bodies are blocks, so a chain of fifty thousand operators is a list rather than a deep tree.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias


@dataclass(slots=True)
class TensorType:
    """`Tensor[(1, ?), float32]`; a dimension `?` is None, a symbolic expression is its text."""

    shape: tuple[int | None, ...]
    dtype: str


@dataclass(slots=True)
class TupleType:
    fields: tuple[Type, ...]


@dataclass(slots=True)
class FuncType:
    arguments: tuple[Type, ...]
    result: Type
    type_params: tuple[str, ...] = ()


@dataclass(slots=True)
class RefType:
    value: Type


@dataclass(slots=True)
class NamedType:
    """Type variable `A`, or algebraic data type with arguments, `List[A]`."""

    name: str
    arguments: tuple[Type, ...] = ()
    applied: bool = False


@dataclass(slots=True)
class UnknownType:
    """`_`: to be inferred."""


Type: TypeAlias = "TensorType | TupleType | FuncType | RefType | NamedType | UnknownType"


@dataclass(slots=True, eq=False)
class Var:
    """Variable; out of scope, a graph binding is replaced by its `definition`."""

    name: str
    type: Type | None = None
    number: int | None = None  # index of a graph binding `%12`, else None
    definition: Expr | None = None
    place: str = ""  # position in the source model: `conv1:0:0`


@dataclass(slots=True, eq=False)
class Global:
    """Global function `@name`."""

    name: str


@dataclass(slots=True, eq=False)
class Op:
    """Operator by its registered name, `nn.conv2d`."""

    name: str


@dataclass(slots=True, eq=False)
class Kernel:
    """Kernel inserted by a TVM pass, by name; printed but not parsed."""

    name: str


@dataclass(slots=True, eq=False)
class Extents:
    """Shape operand of a kernel, as text."""

    values: tuple[str, ...]


@dataclass(slots=True, eq=False)
class Constructor:
    name: str


@dataclass(slots=True, eq=False)
class Constant:
    """Tensor constant: a numpy array, or a TVM tensor for dtypes that numpy lacks."""

    value: Any


@dataclass(slots=True, eq=False)
class Tuple:
    fields: list[Expr]


@dataclass(slots=True, eq=False)
class Field:
    """Tuple field `%x.0`."""

    tuple: Expr
    index: int


@dataclass(slots=True, eq=False)
class Call:
    function: Expr
    arguments: list[Expr]
    attributes: dict[str, Any] = field(default_factory=dict)
    position: int = -1


@dataclass(slots=True, eq=False)
class Block:
    """Bindings in order, then the result with its type and source position, if shown."""

    bindings: list[tuple[Var, Expr]]
    result: Expr
    type: Type | None = None
    place: str = ""


@dataclass(slots=True, eq=False)
class Function:
    parameters: list[Var]
    body: Block
    result: Type | None = None
    type_params: tuple[str, ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class If:
    condition: Expr
    then: Block
    otherwise: Block


@dataclass(slots=True, eq=False)
class Clause:
    pattern: Pattern
    body: Block


@dataclass(slots=True, eq=False)
class Match:
    value: Expr
    clauses: list[Clause]
    complete: bool = True


@dataclass(slots=True, eq=False)
class RefCreate:
    value: Expr


@dataclass(slots=True, eq=False)
class RefRead:
    ref: Expr


@dataclass(slots=True, eq=False)
class RefWrite:
    ref: Expr
    value: Expr


Expr: TypeAlias = (
    "Var | Global | Op | Kernel | Extents | Constructor | Constant | Tuple | Field | Call | "
    "Block | Function | If | Match | RefCreate | RefRead | RefWrite"
)


@dataclass(slots=True, eq=False)
class AnyPattern:
    """Wildcard pattern `_`."""


@dataclass(slots=True, eq=False)
class VarPattern:
    var: Var


@dataclass(slots=True, eq=False)
class ConstructorPattern:
    name: str
    fields: list[Pattern]


@dataclass(slots=True, eq=False)
class TuplePattern:
    fields: list[Pattern]


Pattern: TypeAlias = "AnyPattern | VarPattern | ConstructorPattern | TuplePattern"


@dataclass(slots=True)
class DataType:
    """`type List[A] { Cons(A, List[A]), Nil }`; maps constructor names to field types."""

    name: str
    type_params: tuple[str, ...]
    constructors: dict[str, tuple[Type, ...]]


@dataclass(slots=True)
class Module:
    functions: dict[str, Function] = field(default_factory=dict)
    types: dict[str, DataType] = field(default_factory=dict)
    source: str = "from_string"
    text: str | None = None
