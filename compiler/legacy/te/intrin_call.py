"""Intrinsics called inside of `te.compute`, for tiles of its result.

te.compute((n, 16), lambda i: vadd(a[i, 0:16], b[i, 0:16]))
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm import sym, te, tirx
from tvm.ir import Range
from tvm.te import Tensor, _ffi_api
from tvm.te.operation import compute as _new_compute
from tvm.te.tensor import TensorSlice
from tvm.tirx import IterVar

from ...errors import ScheduleError
from .dataflow import INTRIN, map_loads, reduction_of_tuple, substitute
from .intrin import IntrinCall, TensorIntrin


def compute(
    shape: Any,
    fcompute: Callable[..., Any],
    name: str = "compute",
    tag: str = "",
    attrs: Any = None,
    varargs_names: Any = None,
) -> Any:
    """`te.compute`, whose function may call an intrinsic.

    Such a function takes fewer indices than `shape` has dimensions; the intrinsic's result has
    the others.

    Raises ScheduleError: the call does not fit the intrinsic.
    """
    whole = list(shape) if isinstance(shape, (list, tuple)) else None
    found = inspect.getfullargspec(fcompute)
    if whole is not None and found.varargs is None and 0 < len(found.args) < len(whole):
        axes = [_axis(extent, given) for extent, given in zip(whole, found.args)]
        call = fcompute(*(axis.var for axis in axes))
        if isinstance(call, IntrinCall):
            return _Built(call, axes, whole, name).outputs(tag, dict(attrs or {}))
    return _new_compute(shape, fcompute, name, tag, attrs, varargs_names)


def _axis(extent: Any, name: str, kind: int = IterVar.DataPar) -> Any:
    extent = tirx.const(extent, "int32") if isinstance(extent, int) else extent
    dtype = str(extent.ty.dtype)
    return IterVar(Range(tirx.const(0, dtype), extent), tirx.Var(name, dtype), kind)


@dataclass(frozen=True, eq=False)
class _Called:
    """An operation's attribute: TVM would make a function of the intrinsic, which is callable."""

    intrin: TensorIntrin


@dataclass(frozen=True, eq=False)
class _Built:
    """The computation of a call of an intrinsic, which its stage tensorizes."""

    call: IntrinCall
    outer: list[Any]
    shape: list[Any]
    name: str

    def _refuse(self, reason: str) -> Any:
        raise ScheduleError(f"te.compute {self.name}: {self.call.intrin.name}(...) {reason}")

    def outputs(self, tag: str, attrs: dict[str, Any]) -> Any:
        """The tensors that are computed."""
        intrin, op = self.call.intrin, self.call.intrin.op
        inner = [self._of_tile(axis, extent) for axis, extent in zip(op.axis, self._tile_shape())]
        scalars = self._scalars()
        reduced = [IterVar(axis.dom, axis.var.name, IterVar.CommReduce) for axis in op.reduce_axis]
        values = {
            old.var: new.var for old, new in zip([*op.axis, *op.reduce_axis], [*inner, *reduced])
        }
        body = self._body({**values, **scalars}, [*self.call.reduce_axis, *reduced])
        called = _Called(replace(intrin, scalar_values=scalars))
        made = _ffi_api.ComputeOp(
            self.name, tag, {**attrs, INTRIN: called}, [*self.outer, *inner], body
        )
        outputs = tuple(made.output(index) for index in range(len(body)))
        return outputs[0] if len(outputs) == 1 else outputs

    def _tile_shape(self) -> list[Any]:
        tile, wanted = self.shape[len(self.outer) :], self.call.intrin.op.axis
        if len(tile) != len(wanted):
            self._refuse(f"has a result of {len(wanted)} dimensions, and {len(tile)} are left")
        return tile

    def _of_tile(self, axis: Any, extent: Any) -> Any:
        if not _is_same(extent, axis.dom.extent):
            self._refuse(f"computes {axis.dom.extent} elements along {axis.var.name}, not {extent}")
        return _axis(axis.dom.extent, f"{axis.var.name}.t")

    def _scalars(self) -> dict[Any, Any]:
        params, given = self.call.intrin.scalar_params, self.call.scalars
        if len(params) != len(given):
            self._refuse(f"takes {len(params)} scalars, not {len(given)}")
        return {param: _number(value, str(param.ty.dtype)) for param, value in zip(params, given)}

    def _body(self, values: dict[Any, Any], reduce_axis: Sequence[Any]) -> list[Any]:
        """Compute the intrinsic's operation on the given regions."""
        op, intrin = self.call.intrin.op, self.call.intrin
        if len(self.call.regions) != len(intrin.inputs):
            self._refuse(f"takes {len(intrin.inputs)} tensors, not {len(self.call.regions)}")
        sources = [self._source(*pair) for pair in zip(intrin.inputs, self.call.regions)]

        def read(tensor: Any, indices: list[Any]) -> Any:
            place = next(i for i, own in enumerate(intrin.inputs) if own == tensor)
            return sources[place](indices)

        moved = [map_loads(substitute(value, values), read) for value in op.body]
        if not isinstance(moved[0], tirx.Reduce):
            if self.call.reduce_axis:
                self._refuse("has a reduce_axis, and the intrinsic reduces nothing")
            return moved
        first = moved[0]
        whole = tirx.Reduce(
            first.combiner, first.source, list(reduce_axis), first.condition, 0, first.init
        )
        return [whole] + [reduction_of_tuple(whole, index) for index in range(1, len(moved))]

    def _source(self, own: Tensor, region: Any) -> Callable[[list[Any]], Any]:
        """Reads an element of the region that stands for one of the intrinsic's inputs."""
        is_slice = isinstance(region, TensorSlice)
        tensor = region.tensor if is_slice else region
        given = list(region.indices) if is_slice else [slice(None)] * len(tensor.shape)
        given += [slice(None)] * (len(tensor.shape) - len(given))
        spans = [_span(each, extent) for each, extent in zip(given, tensor.shape)]
        lengths = [length for _, length in spans if length is not None]
        fits = len(lengths) == len(own.shape) and all(map(_is_same, lengths, own.shape))
        if not fits:
            self._refuse(f"takes {list(own.shape)} elements as {own.op.name}, not {lengths}")

        def at(indices: list[Any]) -> Any:
            rest = iter(indices)
            return tensor(*(s if n is None else s + next(rest) for s, n in spans))

        return at


def _number(value: Any, dtype: str) -> Any:
    if isinstance(value, (int, float)):
        return tirx.const(value, dtype)
    return value if str(value.ty.dtype) == dtype else value.astype(dtype)


def _span(given: Any, extent: Any) -> tuple[Any, Any]:
    """First element and length of a slice; of an index, itself and None."""
    if not isinstance(given, slice):
        return (given.var if isinstance(given, IterVar) else given), None
    start = 0 if given.start is None else given.start
    stop = extent if given.stop is None else given.stop
    return start, stop - start


def _is_same(one: Any, other: Any) -> bool:
    whole = [tirx.const(each, "int32") if isinstance(each, int) else each for each in (one, other)]
    return bool(sym.Analyzer().can_prove_equal(*whole))


def called_intrin(op: Any) -> TensorIntrin | None:
    """The intrinsic that a compute calls."""
    is_call = isinstance(op, te.ComputeOp) and INTRIN in op.attrs
    return op.attrs[INTRIN].intrin if is_call else None
