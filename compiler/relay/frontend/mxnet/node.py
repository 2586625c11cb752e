"""Interface of converters to one MXNet node: inputs as Relax expressions, attributes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from tvm import relax

from compiler.errors import FrontendError, UnknownShapeError, UnsupportedOperatorError
from compiler.ir.constants import dtype_of, static_shape
from compiler.mxnet_format import attributes

if TYPE_CHECKING:
    from compiler.mxnet_format.graph import Graph, Node

    from .graph import Scope, SymbolImporter

T = TypeVar("T")
REQUIRED: Any = object()

NO_EFFECT = frozenset(
    [
        # counts and extents that the inputs or subgraphs have
        *("input_dim", "num_args", "num_filter", "num_hidden", "num_outputs", "output_dim"),
        # how and where it is computed
        *("cudnn_algo_verbose", "cudnn_off", "cudnn_tune", "ctx", "forward_stype", "infer_range"),
        *("key", "ndev", "optimize", "sparse_grad", "workspace"),
        # training
        *("grad_scale", "ignore_label", "momentum", "normalization", "out_grad", "p"),
        *("penalty", "smooth_alpha", "sparseness_target", "use_global_stats", "use_ignore"),
        "valid_thresh",
        # calibration, which only quantized operators use
        *("max_calib_range", "min_calib_range"),
    ]
)
"""Attributes on which no result of inference depends."""


@dataclass
class SymbolNode:
    """One MXNet node during conversion; `scope` has the values of its graph's entries.

    Inputs are looked up when a converter asks for them: a variable that no converter asks for does
    not become a parameter.
    """

    node: Node
    importer: SymbolImporter
    scope: Scope
    _asked: set[str] = field(default_factory=set)

    @property
    def op(self) -> str:
        """Operator name as in the file."""
        return self.node.op

    @property
    def count(self) -> int:
        return len(self.node.inputs)

    def __getitem__(self, index: int) -> relax.Expr:
        """Input `index`, which the operator requires."""
        value = self.try_get(index)
        if value is None:
            if index >= self.count:
                raise self.unsupported(f"input {index} is missing")
            source = self.scope.graph.nodes[self.node.inputs[index].node]
            raise UnknownShapeError(
                f"the shape of input {source.name!r} of {self.describe()} is not known; "
                f"give it in `shape`"
            )
        return value

    def try_get(self, index: int) -> relax.Expr | None:
        """Input `index`; None where it is missing or a variable of unknown shape."""
        if index >= self.count:
            return None
        return self.importer.entry_value(self, index)

    def all(self) -> list[relax.Expr]:
        return [self[index] for index in range(self.count)]

    def emit(self, expr: relax.Expr) -> relax.Expr:
        """Bind `expr` to a variable and return it."""
        return self.importer.builder.emit(expr)

    def stack(self, values: list[relax.Expr]) -> relax.Expr:
        """The values along a new first axis."""
        grown = [self.emit(relax.op.expand_dims(value, 0)) for value in values]
        return self.emit(relax.op.concat(grown, 0)) if len(grown) > 1 else grown[0]

    def shape(self, index: int) -> tuple[int, ...]:
        """Static shape of input `index`."""
        return self.shape_of(self[index])

    def shape_of(self, expr: relax.Expr) -> tuple[int, ...]:
        """Static shape of an emitted expression."""
        extents = static_shape(expr)
        if extents is None:
            raise self.unsupported("a shape is known only at run time")
        return extents

    def dtype(self, index: int) -> str:
        """Dtype of input `index`, e.g. "float32"."""
        return dtype_of(self[index])

    def scalar(self, value: float, dtype: str | None = None) -> relax.Expr:
        """A constant of the dtype of input 0 or of `dtype`."""
        return relax.const(value, dtype or self.dtype(0))

    def has(self, name: str) -> bool:
        """Whether attribute `name` is set to anything but None."""
        self._asked.add(name)
        return name in self.node.attrs and not attributes.is_none(self.node.attrs[name])

    def text(self, name: str, default: str = REQUIRED) -> str:
        """Attribute `name` as it stands in the file."""
        return self._attr(name, default, str)

    def integer(self, name: str, default: T = REQUIRED) -> int | T:
        """Attribute `name` as an integer; None where it says so counts as absent."""
        return self._attr(name, default, attributes.parse_int)

    def number(self, name: str, default: float = REQUIRED) -> float:
        return self._attr(name, default, attributes.parse_float)

    def flag(self, name: str, default: bool = REQUIRED) -> bool:
        return self._attr(name, default, attributes.parse_bool)

    def integers(self, name: str, default: T = REQUIRED) -> tuple[int, ...] | T:
        """Attribute `name` as a tuple of integers; None where it says so counts as absent."""
        return self._attr(name, default, attributes.parse_int_tuple)

    def optional_integers(self, name: str, default: T = REQUIRED) -> tuple[int | None, ...] | T:
        """Attribute `name` as a tuple of integers and None."""
        return self._attr(name, default, attributes.parse_optional_int_tuple)

    def dtype_attr(self, default: str = REQUIRED, name: str = "dtype") -> str:
        """Attribute `name` as the name of a dtype."""
        return self._attr(name, default, attributes.parse_dtype)

    def _attr(self, name: str, default: Any, parse: Callable[[str], Any]) -> Any:
        if not self.has(name):
            if default is REQUIRED:
                raise FrontendError(f"{self.describe()} lacks the attribute {name!r}")
            return default
        text = self.node.attrs[name]
        try:
            return parse(text)
        except (ValueError, OverflowError) as error:
            raise FrontendError(
                f"{self.describe()}: attribute {name!r} is {text!r}: {error}"
            ) from error

    def without_effect(self, *names: str) -> None:
        """Say that this form of the operator does not depend on attributes that others read."""
        self._asked.update(names)

    def refuse_unread(self) -> None:
        """Raise for an attribute that is set, may change the result and was not asked for.

        An operator whose converter asks for none has no parameters; MXNet lets such an operator
        carry any attribute.
        """
        for name, text in self.node.attrs.items() if self._asked else ():
            annotation = name.startswith("__") and name.endswith("__")
            known = annotation or name in NO_EFFECT or name in self._asked
            if not known and not attributes.is_none(text):
                raise self.unsupported(f"the attribute {name}={text!r} is not supported")

    def spatial(self, name: str, rank: int, default: int) -> tuple[int, ...]:
        """Attribute `name` with one integer for each of `rank` spatial axes."""
        values = self.integers(name, ())
        if not values:
            return (default,) * rank
        if len(values) == 1:
            return values * rank
        if len(values) != rank:
            raise FrontendError(f"{self.describe()}: {name} {values} does not have {rank} items")
        return values

    def axis(self, value: int, rank: int) -> int:
        """An axis counted from the front."""
        if not -rank <= value < rank:
            raise FrontendError(f"{self.describe()}: axis {value} of an array of {rank} axes")
        return value % rank

    def describe(self) -> str:
        """Name the node for a message."""
        return f"node {self.node.name!r} (operator {self.node.op})"

    def unsupported(self, why: str) -> UnsupportedOperatorError:
        """The error that says that this form of the operator can't be converted."""
        return UnsupportedOperatorError(f"operator {self.op} of node {self.node.name!r}: {why}")


def variables_for(graph: Graph, count: int) -> list[int]:
    """The variables of a subgraph, one for each of `count` inputs of its node."""
    variables = [i for i, node in enumerate(graph.nodes) if node.is_variable]
    if len(variables) != count:
        raise FrontendError(
            f"a subgraph has {len(variables)} variables, but its node {count} inputs"
        )
    return variables
