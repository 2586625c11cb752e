"""Lazy evaluation: requested values and everything they depend on compile as one program.

The programs are cached by structure: operators, attributes, types and wiring. Numbers in arithmetic
(`x * 2.5`) are no structure but inputs of the program, so that a loop over numbers compiles once.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from compiler.errors import ArrayError, BatonError, DeferredComputeError
from compiler.mxnet.symbol.symbol import Symbol
from compiler.mxnet_format.graph import VARIABLE, Entry, Graph, Node
from compiler.support.depth_first import depth_first

from ..device import Device
from .infer import NUMPY_SEMANTICS
from .program import Flags, Program
from .value import Record, Value, call_site, current_trace

LONGEST_CHAIN = 64
"""A chain of more operators is computed in pieces; fused kernels get slow to compile beyond."""

_CAPACITY = 512
_LOCK = threading.RLock()
_PROGRAMS: OrderedDict[Any, Program] = OrderedDict()
_COUNTS = {"hits": 0, "misses": 0}

_NUMBER_INPUTS = {
    f"_npi_{mark}{name}_scalar": (f"_npi_{name}", bool(mark))
    for name, marks in (
        ("add", ("",)),
        ("subtract", ("", "r")),
        ("multiply", ("",)),
        ("true_divide", ("", "r")),
        ("maximum", ("",)),
        ("minimum", ("",)),
    )
    for mark in marks
}
"""Operators with a number, the operator with two arrays, and whether the number is its first."""


class CacheInfo(NamedTuple):
    """State of the cache of eagerly compiled programs."""

    hits: int
    misses: int
    maxsize: int
    currsize: int


def cache_info() -> CacheInfo:
    """How often evaluation found its program compiled, and how many programs are kept."""
    with _LOCK:
        return CacheInfo(_COUNTS["hits"], _COUNTS["misses"], _CAPACITY, len(_PROGRAMS))


def cache_clear() -> None:
    """Forget the compiled programs."""
    with _LOCK:
        _PROGRAMS.clear()
        _COUNTS.update(hits=0, misses=0)


def tensor_of(value: Value) -> Any:
    """The value's tensor, computed now if it has not been.

    Raises DeferredComputeError: a block's `forward` is being traced; names the line that asked.
    Raises ArrayError: what has been recorded can't be computed; names the line that recorded it.
    """
    trace = current_trace()
    if trace is not None and trace.block and value.has_history:
        made = f", made at {value.record.where}" if value.record is not None else ""
        raise DeferredComputeError(
            f"{call_site()}: the forward of {trace.block} asks for the value of an array while it "
            f"is traced{made}; a traced forward may branch on shapes, not on values. Use np.where "
            "or npx.foreach, or call the block without hybridize()"
        )
    if value.tensor is None:
        evaluate([value])
    return value.tensor


def evaluate(values: Sequence[Value]) -> None:
    """Compute values, and with them those on their way that an array still names."""
    with _LOCK:
        wanted = [value for value in values if value.tensor is None]
        if wanted:
            _Run(wanted).execute()


class _Run:
    """One evaluation: the records it covers, in order, and the tensors they start from."""

    def __init__(self, wanted: Sequence[Value]) -> None:
        self.records: list[Record] = []
        self.position: dict[Record, int] = {}
        self.leaves: list[Any] = []
        self.leaf_types: list[tuple[tuple[int, ...], str]] = []
        self._leaf_of: dict[int, int] = {}
        self.nodes: list[tuple[Any, ...]] = []
        self._collect([value.record for value in wanted])
        for record in self.records:
            self.nodes.append(self._describe(record))
        self.outputs = self._outputs(wanted)
        self.device = self.records[0].device

    def _collect(self, roots: Sequence[Record | None]) -> None:
        """The records that have not been computed, each after those it reads."""
        if None in roots:
            raise ArrayError("an array has neither a value nor an operator that makes it")

        def pending(record: Record) -> Iterator[Record]:
            return (v.record for v in record.inputs if v.tensor is None and v.record is not None)

        for record in depth_first(filter(None, roots), pending):
            self.position[record] = len(self.records)
            self.records.append(record)

    def _describe(self, record: Record) -> tuple[Any, ...]:
        """Operator, attributes, subgraphs, and per input a node's output or a leaf's number."""
        inputs = [
            ("leaf", self._leaf(value))
            if value.tensor is not None
            else (self.position[value.record], value.index)  # type: ignore[index]
            for value in record.inputs
        ]
        turned = _NUMBER_INPUTS.get(record.op)
        if turned is not None and _number_fits(record):
            op, first = turned
            number = ("leaf", self._number(record))
            return op, (), (), tuple([number, *inputs] if first else [*inputs, number])
        return record.op, tuple(record.attrs.items()), record.subgraphs, tuple(inputs)

    def _leaf(self, value: Value) -> int:
        key = id(value.tensor)
        if key not in self._leaf_of:
            self._leaf_of[key] = len(self.leaves)
            self.leaves.append(value.tensor)
            self.leaf_types.append((value.shape, value.dtype))
        return self._leaf_of[key]

    def _number(self, record: Record) -> int:
        import tvm

        dtype = record.inputs[0].dtype
        self.leaves.append(tvm.runtime.tensor(np.array(float(record.attrs["scalar"]), dtype)))
        if not record.device.is_cpu:
            self.leaves[-1] = self.leaves[-1].copyto(record.device.tvm_device())
        self.leaf_types.append(((), dtype))
        return len(self.leaves) - 1

    def _outputs(self, wanted: Sequence[Value]) -> list[tuple[Record, int]]:
        kept = {(value.record, value.index) for value in wanted}
        kept |= {(r, i) for r in self.records for i, value in r.alive() if _is_named(value)}
        return [(r, i) for r in self.records for i in range(len(r.types)) if (r, i) in kept]

    def execute(self) -> None:
        outputs = tuple((self.position[record], index) for record, index in self.outputs)
        # Subgraphs are compared by identity: the graphs of one traced body are one object.
        keyed = tuple(
            (op, attrs, tuple(map(id, bodies)), ins) for op, attrs, bodies, ins in self.nodes
        )
        key = (keyed, tuple(self.leaf_types), outputs, self.device)
        program = _PROGRAMS.get(key) if not any(node[2] for node in self.nodes) else None
        if program is not None:
            _COUNTS["hits"] += 1
            _PROGRAMS.move_to_end(key)
        else:
            _COUNTS["misses"] += 1
            program = self._compile(outputs)
            if not any(node[2] for node in self.nodes):
                _PROGRAMS[key] = program
            while len(_PROGRAMS) > _CAPACITY:
                _PROGRAMS.popitem(last=False)
        for (record, index), tensor in zip(self.outputs, program(self.leaves)):
            for position, value in record.alive():
                if position == index:
                    value.tensor = tensor
                    if not record.traced:
                        value.record = None

    def _compile(self, outputs: Sequence[tuple[int, int]]) -> Program:
        leaves = [f"in{number}" for number in range(len(self.leaves))]
        nodes = [Node(VARIABLE, name) for name in leaves]
        for number, (op, attrs, bodies, inputs) in enumerate(self.nodes):
            entries = [
                Entry(index) if source == "leaf" else Entry(len(leaves) + source, index)
                for source, index in inputs
            ]
            nodes.append(Node(op, f"op{number}", entries, dict(attrs), subgraphs=list(bodies)))
        heads = [Entry(len(leaves) + node, index) for node, index in outputs]
        symbol = Symbol(Graph(nodes, heads, {"is_np_shape": NUMPY_SEMANTICS}))
        types = dict(zip(leaves, self.leaf_types))
        try:
            return Program(symbol, types, {}, self.device, Flags())
        except BatonError as error:
            places = list(dict.fromkeys(f"{r.op} at {r.where}" for r in self.records))
            shown = "; ".join(places[:8]) + (" ..." if len(places) > 8 else "")
            raise ArrayError(f"recorded operators can't be compiled ({shown}): {error}") from error


def _number_fits(record: Record) -> bool:
    """Whether the number, in the dtype of the array, means the same as in the attribute."""
    dtype = np.dtype(record.inputs[0].dtype)
    if dtype.kind == "f":
        return True
    number = float(record.attrs["scalar"])
    return dtype.kind == "i" and record.types[0][1] == str(dtype) and number.is_integer()


def _is_named(value: Value) -> bool:
    return value.owner is not None and value.owner() is not None


def create_tensor(array: np.ndarray, device: Device) -> Any:
    """A copy of a host array on a device."""
    import tvm

    from compiler.ir.constants import to_tensor

    if device.is_cpu:
        return to_tensor(np.ascontiguousarray(array).reshape(array.shape))
    return tvm.runtime.tensor(np.asarray(array, order="C"), device=device.tvm_device())
