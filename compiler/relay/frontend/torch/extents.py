"""Extents that an exported program leaves open, as the export records them.

While PyTorch traces, the extent of a tensor is a tensor itself, which remembers how it was
computed. Only PyTorch's own Python functions take such a number where an operator wants an integer;
a call by the operator's overload would keep the number of the example.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.utils import _pytree

from compiler.errors import FrontendError, UnknownShapeError, UnsupportedOperatorError

_EXAMPLE = 5


@dataclass(frozen=True)
class Input:
    """A tensor that the program is called with; names in `shape` are dynamic extents.

    `bounds` are largest values of names that have one. `examples` are two shapes that the program
    takes, different in each dynamic extent where its range allows.
    """

    name: str
    dtype: torch.dtype
    shape: tuple[int | str, ...]
    bounds: Mapping[str, int]
    examples: tuple[tuple[int, ...], tuple[int, ...]]

    @staticmethod
    def closed(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Input:
        """An input all extents of which are known."""
        return Input(name, dtype, shape, {}, (shape, shape))

    @property
    def axes(self) -> dict[int, str]:
        """The open axes and their names."""
        return {axis: each for axis, each in enumerate(self.shape) if isinstance(each, str)}

    def example(self, which: int) -> torch.Tensor:
        """Zeros of the first or the second example's shape."""
        return torch.zeros(self.examples[which], dtype=self.dtype)


def open_inputs(
    program: torch.export.ExportedProgram,
    tensors: Mapping[str, torch.Tensor],
    shapes: Sequence[Sequence[Any] | None],
) -> list[Input]:
    """The inputs as an exported program and the caller describe them.

    Extents of `tensors` that the program leaves open are symbols. A number in `shapes`, the
    caller's, closes an open extent; a string names it, also where other inputs have it. Raises
    FrontendError for a shape that contradicts the program, UnknownShapeError for other extents.
    """
    given: dict[Any, int | str] = {}
    for (name, value), wanted in zip(tensors.items(), shapes):
        if wanted is not None:
            _require_fit(program, name, value, wanted)
            for known, want in zip(_known(value), wanted):
                if want is not None and not isinstance(known, int):
                    given.setdefault(known.node.expr, want if isinstance(want, str) else int(want))
    given = _dim_names(tensors.values()) | given
    inputs = []
    for name, value in tensors.items():
        shape = _known(value)
        labels = [_label(name, axis, known, given) for axis, known in enumerate(shape)]
        bounds = {
            label: most
            for label, known in zip(labels, shape)
            if isinstance(label, str) and (most := _range(program, known)[1]) is not None
        }
        one, other = (
            tuple(_example(program, known, given, step) for known in shape) for step in (0, 1)
        )
        inputs.append(Input(name, value.dtype, tuple(labels), bounds, (one, other)))
    return inputs


def _dim_names(tensors: Iterable[torch.Tensor]) -> dict[Any, int | str]:
    """Names of the `Dim`s of extents, by their symbols; a program that was saved has none."""
    names: dict[Any, int | str] = {}
    for extent in (each for tensor in tensors for each in tensor.shape):
        environment: Any = None if isinstance(extent, int) else extent.node.shape_env
        variables = getattr(environment, "source_to_var", {})
        for source, name in getattr(environment, "source_name_to_debug_name", {}).items():
            if source in variables:
                symbol = variables[source]
                names[environment.replacements.get(symbol, symbol)] = name
    return names


def _require_fit(
    program: torch.export.ExportedProgram, name: str, value: torch.Tensor, shape: Sequence[Any]
) -> None:
    for want in shape:
        if not (want is None or isinstance(want, str) or hasattr(want, "__index__")):
            raise UnknownShapeError(
                f"input_infos gives input {name!r} the extent {want!r}; it must be a number, a "
                "name or None"
            )
    fits = len(shape) == value.dim() and all(
        want is None
        or (not isinstance(known, int) if isinstance(want, str) else _may_be(program, known, want))
        for known, want in zip(_known(value), shape)
    )
    if not fits:
        raise FrontendError(
            f"input_infos gives input {name!r} the shape {tuple(shape)}; it was exported for "
            f"{tuple(value.shape)}"
        )


def _known(value: torch.Tensor) -> list[Any]:
    """The extents; those that the program turned out to fix are numbers, too."""
    return [
        int(extent) if isinstance(extent, int) or extent.node.expr.is_number else extent
        for extent in value.shape
    ]


def _may_be(program: torch.export.ExportedProgram, known: Any, number: int) -> bool:
    if isinstance(known, int):
        return known == number
    least, most = _range(program, known)
    return least <= number and (most is None or number <= most)


def _range(program: torch.export.ExportedProgram, extent: Any) -> tuple[int, int | None]:
    """The least extent, and the largest one if there is a limit."""
    from torch.utils._sympy.value_ranges import bound_sympy

    expression = extent if isinstance(extent, sympy.Basic) else extent.node.expr
    found = bound_sympy(expression, program.range_constraints)
    least = int(found.lower) if found.lower.is_Integer else 0
    return least, int(found.upper) if found.upper.is_Integer else None


def _label(name: str, axis: int, known: Any, given: Mapping[Any, int | str]) -> int | str:
    if isinstance(known, int):
        return known
    expression = known.node.expr
    return given.get(expression, str(expression) if expression.is_Symbol else f"{name}_{axis}")


def _example(
    program: torch.export.ExportedProgram, known: Any, given: Mapping[Any, int | str], step: int
) -> int:
    """A value of an extent; equal symbols have equal values in all extents."""
    if isinstance(known, int):
        return known
    values = {}
    for symbol in known.node.expr.free_symbols:
        number = given.get(symbol)
        if not isinstance(number, int):
            least, most = _range(program, symbol)
            number = max(least, _EXAMPLE)
            if most is not None:
                number = min(number, most - 1) if most > least else least
            number += step if most is None or number < most else 0
        values[symbol] = number
    return int(known.node.expr.subs(values))


def is_open(value: Any) -> bool:
    """Whether an argument is a number that the trace computes."""
    return isinstance(value, torch.Tensor)


def reads_open_extents(op: torch._ops.OpOverload, args: Sequence[Any], kwargs: Any) -> bool:
    """Whether an operator is called with a tensor where it wants integers."""
    declared = {argument.name: argument for argument in op._schema.arguments}
    pairs = [*zip(op._schema.arguments, args), *((declared[name], v) for name, v in kwargs.items())]
    return any(
        "Tensor" not in str(argument.type)
        and any(is_open(leaf) for leaf in _pytree.tree_leaves(value))
        for argument, value in pairs
    )


def call_with_open_extents(op: torch._ops.OpOverload, args: Sequence[Any], kwargs: Any) -> Any:
    """An operator's results, by the Python function that lets the trace see its extents."""
    name = op._schema.name.removeprefix("aten::")
    if name in _FUNCTIONS:
        return _FUNCTIONS[name](*args, **kwargs)
    for holder in (torch.Tensor, torch, torch._C._nn):
        if hasattr(holder, name):
            return getattr(holder, name)(*args, **kwargs)
    raise UnsupportedOperatorError(
        f"{op._schema.name} of extents that are known only when the model runs; export the program "
        "with these extents fixed"
    )


def arithmetic(function: Callable[..., Any], args: Sequence[Any]) -> Any:
    """Python's arithmetic on extents, as the trace records it."""
    if function in _ARITHMETIC:
        return _ARITHMETIC[function](*args)
    raise UnsupportedOperatorError(
        f"{getattr(function, '__name__', function)} of extents that are known only when the model "
        "runs; export the program with these extents fixed"
    )


def _slice(
    data: torch.Tensor, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> torch.Tensor:
    return data[(slice(None),) * (dim % data.dim()) + (slice(start, end, step),)]


def _both(function: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    return lambda left, right: function(torch.as_tensor(left), torch.as_tensor(right))


_FUNCTIONS: dict[str, Callable[..., Any]] = {"_unsafe_view": torch.reshape, "slice": _slice}

_ARITHMETIC: dict[Any, Callable[..., Any]] = {
    **{
        each: each
        for each in (operator.add, operator.sub, operator.mul, operator.neg, operator.ge,
                     operator.gt, operator.le, operator.lt, operator.eq, operator.ne)
    },
    operator.floordiv: lambda left, right: torch.div(left, right, rounding_mode="floor"),
    operator.mod: lambda left, right: torch.remainder(torch.as_tensor(left), right),
    torch.sym_max: _both(torch.maximum),
    torch.sym_min: _both(torch.minimum),
}  # fmt: skip
