"""A graph that is being drawn: every node is run at once, so that all shapes and values are known.

An operator's maker asks the draft for operands, existing or new ones, and adds its node. A node
that neither onnxruntime nor ONNX's reference evaluator can run is an `EvaluationError`, and the
draft stays as it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper

from . import values
from .evaluate import EvaluationError, NodeRunner, Value, quiet

FLOATS = ("float32", "float64", "float16")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = SIGNED + UNSIGNED
DTYPES = (*FLOATS, *INTEGERS, "bool")
_WEIGHTS = {"float32": 12, "int64": 3, "int32": 2, "float64": 2, "float16": 2, "bool": 2}
_ONNX_NAMES = {"float32": "float", "float64": "double"}

LARGEST = 6000
"""Elements of a tensor; larger ones are not drawn."""

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Operand:
    """An input of the graph.

    The role "data" may hold anything; "index" has only the values from `low` to `high` that are in
    range; "divisor" is not 0; "unit" is from -1 to 1; "positive" is larger than 0; "fixed" holds a
    shape, an axis, a scale or the like, and keeps its value.
    """

    role: str
    low: int = 0
    high: int = 0


class Draft:
    """A graph under construction, with the value of every tensor and sequence so far."""

    def __init__(self, rng: np.random.Generator, opset: int):
        self.rng = rng
        self.opset = opset
        self.values: dict[str, Value] = {}
        self.inputs: dict[str, Operand] = {}
        self.constants: set[str] = set()
        self.nodes: list[onnx.NodeProto] = []
        self._runner = NodeRunner(opset)

    # ------------------------------------------------------------ chance

    def chance(self, probability: float) -> bool:
        """True as often as `probability` says."""
        return bool(self.rng.random() < probability)

    def one_of(self, items: Sequence[Any]) -> Any:
        """Any of `items`."""
        return items[int(self.rng.integers(len(items)))]

    def integer(self, low: int, high: int) -> int:
        """Any integer from `low` to `high`, both included."""
        return int(self.rng.integers(low, high + 1))

    def extent(self, high: int = 16) -> int:
        """An extent of an axis, mostly small and rarely 0."""
        if self.chance(0.015):
            return 0
        return min(int(self.one_of((1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 16))), high)

    def shape(self, low: int = 0, high: int = 4) -> Shape:
        """A shape of `low` to `high` axes."""
        return tuple(self.extent(8) for _ in range(self.integer(low, high)))

    def axis(self, rank: int, extra: int = 0) -> int:
        """An axis of a tensor of this rank, at times counted from the end."""
        return self.integer(-(rank + extra), rank + extra - 1)

    def axes(self, rank: int, low: int = 1) -> list[int]:
        """Several different axes, some of them counted from the end."""
        count = self.integer(min(low, rank), rank)
        chosen = self.rng.permutation(rank)[:count].tolist()
        return [axis - rank if self.opset >= 11 and self.chance(0.3) else axis for axis in chosen]

    def dtype(self, allowed: Collection[str] = DTYPES) -> str:
        """One of the dtypes, float32 most often."""
        names = [name for name in DTYPES if name in allowed]
        if not names:
            raise EvaluationError("no dtype that the generator has")
        weights = np.array([_WEIGHTS.get(name, 1) for name in names], "float64")
        return str(self.rng.choice(names, p=weights / weights.sum()))

    def allowed(self, op: str, index: int = 0, domain: str = "") -> tuple[str, ...]:
        """Dtypes that the operator's schema allows for its input `index`."""
        return allowed_dtypes(op, self.opset if not domain else 1, index, domain)

    # ------------------------------------------------------------ operands

    def tensor(
        self,
        allowed: Collection[str] = DTYPES,
        fits: Callable[[Shape], bool] = lambda shape: True,
        new: Callable[[], Shape] | None = None,
        reuse: float = 0.75,
        role: str = "data",
    ) -> str:
        """A tensor of an allowed dtype whose shape fits: one of those there are, or a new one."""
        if self.chance(reuse) and role == "data":
            found = [
                name
                for name, value in self.values.items()
                if isinstance(value, np.ndarray)
                and str(value.dtype) in allowed
                and self.role(name) == "data"
                and fits(value.shape)
            ]
            if found:
                return str(self.one_of(found[-4:] if self.chance(0.7) else found))
        return self.new(self.dtype(allowed), (new or self.shape)(), role)

    def like(self, name: str, shape: Shape, role: str = "data", reuse: float = 0.4) -> str:
        """A tensor of the dtype of another and of this shape."""
        return self.tensor(
            [self.dtype_of(name)], lambda found: found == shape, lambda: shape, reuse, role
        )

    def new(self, dtype: str, shape: Shape, role: str = "data", constant: float = 0.25) -> str:
        """A new input or constant with values of the role."""
        if math.prod(shape) > LARGEST:
            raise EvaluationError(f"a tensor of shape {shape} is too large")
        operand = Operand(role)
        return self.place(values.plain(self.rng, dtype, shape, role), operand, constant)

    def index(self, low: int, high: int, shape: Shape, dtype: str = "int64") -> str:
        """Indices from `low` to `high`, both included."""
        if high < low:
            shape = (*shape[:-1], 0) if shape else (0,)
            array = np.zeros(shape, dtype)
        else:
            array = self.rng.integers(low, high + 1, shape).astype(dtype)
        return self.place(array, Operand("index", low, high), 0.4)

    def fixed(self, value: Any, dtype: str = "int64", constant: float = 0.8) -> str:
        """An operand that keeps its value: a shape, axes, a scale."""
        return self.place(np.asarray(value, dtype), Operand("fixed"), constant)

    def place(self, array: np.ndarray, operand: Operand, constant: float) -> str:
        """A new tensor of these values, constant with that probability."""
        name = f"x{len(self.inputs) + len(self.constants)}"
        self.values[name] = array
        if self.chance(constant):
            self.constants.add(name)
        else:
            self.inputs[name] = operand
        return name

    def role(self, name: str) -> str:
        """Role of a tensor; what nodes compute is data."""
        return self.inputs[name].role if name in self.inputs else "data"

    def shape_of(self, name: str) -> Shape:
        """Shape of a tensor."""
        return tuple(self.values[name].shape)

    def dtype_of(self, name: str) -> str:
        """Dtype of a tensor."""
        return str(self.values[name].dtype)

    # ------------------------------------------------------------ nodes

    def add(
        self,
        op: str,
        inputs: Sequence[str],
        outputs: int | Sequence[bool] = 1,
        domain: str = "",
        **attributes: Any,
    ) -> list[str]:
        """Append a node and run it; attributes that are None are left out.

        `outputs` is the number of outputs, or for each whether it is present.
        """
        wanted = [True] * outputs if isinstance(outputs, int) else list(outputs)
        number = sum(len(node.output) for node in self.nodes)
        names = [f"v{number + i}" if there else "" for i, there in enumerate(wanted)]
        given = {key: value for key, value in attributes.items() if value is not None}
        node = helper.make_node(op, list(inputs), names, domain=domain, **given)
        with quiet():
            results = self._runner.run(node, self.values)
        for value in results.values():
            self._check(value)
        self.nodes.append(node)
        self.values.update(results)
        return names

    def _check(self, value: Value) -> None:
        for array in value if isinstance(value, list) else [value]:
            if str(array.dtype) not in DTYPES:
                raise EvaluationError(f"a result of dtype {array.dtype}")
            if array.size > LARGEST:
                raise EvaluationError(f"a result of shape {array.shape} is too large")


@cache
def allowed_dtypes(op: str, opset: int, index: int, domain: str = "") -> tuple[str, ...]:
    """Dtypes that an operator's schema allows for an input."""
    schema = defs.get_schema(op, opset, domain)
    entry = schema.inputs[min(index, len(schema.inputs) - 1)]
    names = {entry.type_str}
    for constraint in schema.type_constraints:
        if constraint.type_param_str == entry.type_str:
            names = set(constraint.allowed_type_strs)
    found = [d for d in DTYPES if f"tensor({_ONNX_NAMES.get(d, d)})" in names]
    return tuple(found)


def broadcastable(a: Shape, b: Shape) -> bool:
    """Whether numpy broadcasts these shapes to one."""
    return all(m == n or 1 in (m, n) for m, n in zip(a[::-1], b[::-1]))
