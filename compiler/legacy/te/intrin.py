"""`te.decl_tensor_intrin`: a computation and the instructions that do it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from tvm import sym, te, tirx
from tvm.ir import Range, is_prim_expr
from tvm.runtime import ObjectConvertible
from tvm.te import Tensor, _ffi_api
from tvm.te.operation import compute as _new_compute
from tvm.te.tensor import TensorSlice
from tvm.tirx import IterVar

from ...errors import ScheduleError
from .dataflow import INTRIN, map_loads, reduction_of_tuple, substitute


@dataclass(frozen=True, eq=False)
class TensorIntrin:
    """Intrinsic that `Stage.tensorize` substitutes for loops."""

    name: str
    op: Any  # what is computed
    inputs: tuple[Any, ...]
    buffers: tuple[Any, ...]  # of the inputs, then of the outputs
    scalar_params: tuple[Any, ...]  # numbers that a call gives
    # body, reduce_init, reduce_update: the whole; the start of a reduction; one step of it. The
    # last two may be missing.
    body: Any
    reduce_init: Any
    reduce_update: Any
    # What a call gave for `scalar_params`, over the indices of the calling compute
    scalar_values: Mapping[Any, Any] = field(default_factory=dict)

    def __call__(self, *args: Any, reduce_axis: Any = ()) -> IntrinCall:
        """A call inside of `te.compute`: tensors or slices of them, and numbers, in any order.

        `reduce_axis`: reductions of which the intrinsic does a part.
        """
        is_region = [isinstance(each, (Tensor, TensorSlice)) for each in args]
        regions = tuple(each for each, is_it in zip(args, is_region) if is_it)
        scalars = tuple(each for each, is_it in zip(args, is_region) if not is_it)
        axes = (reduce_axis,) if isinstance(reduce_axis, IterVar) else tuple(reduce_axis)
        return IntrinCall(self, regions, scalars, axes)


@dataclass(frozen=True, eq=False)
class IntrinCall(ObjectConvertible):
    """A call of an intrinsic, which the function of a `te.compute` returns."""

    intrin: TensorIntrin
    regions: tuple[Any, ...]
    scalars: tuple[Any, ...]
    reduce_axis: tuple[Any, ...]

    def asobject(self) -> NoReturn:
        """Raises: it is no expression."""
        raise ScheduleError(
            f"{self.intrin.name}(...): a call of an intrinsic is the whole of what a te.compute "
            "returns, whose function leaves the dimensions of the intrinsic's result out"
        )


def decl_tensor_intrin(
    op: Any,
    fcompute: Callable[..., Any],
    name: str = "tensor_intrin",
    binds: Mapping[Any, Any] | None = None,
    scalar_params: Sequence[Any] | None = None,
    default_buffer_params: Mapping[str, Any] | None = None,
) -> TensorIntrin:
    """Declare an intrinsic.

    `op`: what the intrinsic computes, on tensors of the intrinsic's shapes. `fcompute`: (input
    buffers, output buffers) -> the body, or (body, reset, update) for an intrinsic that does a part
    of a reduction. With `scalar_params`, these are a third argument. `binds`: buffers with their
    own strides or offsets. `scalar_params`: numbers in the operation that each call of the
    intrinsic gives. `default_buffer_params`: of `tvm.tirx.decl_buffer`, for the others.
    Raises ScheduleError: the operation is no `te.compute`, or `fcompute` returns something else.
    """
    if not isinstance(op, te.ComputeOp):
        raise ScheduleError(f"te.decl_tensor_intrin {name}: {op!r} is not a te.compute operation")
    inputs = list(op.input_tensors)
    tensors = [*inputs, *(op.output(i) for i in range(op.num_outputs))]
    given = dict(binds or {})
    params = {"offset_factor": 1, **(default_buffer_params or {})}
    buffers = [
        given[tensor]
        if tensor in given
        else tirx.decl_buffer(
            tensor.shape, str(tensor.dtype), tensor.op.name, layout=None, **params
        )
        for tensor in tensors
    ]
    scalars = tuple(scalar_params or ())
    given_scalars = [list(scalars)] if scalars else []
    made = fcompute(buffers[: len(inputs)], buffers[len(inputs) :], *given_scalars)
    body, init, update = (
        tirx.Evaluate(part) if is_prim_expr(part) else part for part in _three(name, made)
    )
    return TensorIntrin(name, op, tuple(inputs), tuple(buffers), scalars, body, init, update)


def _three(name: str, made: Any) -> tuple[Any, ...]:
    if not isinstance(made, (tuple, list)):
        return (made, None, None)
    if len(made) in (2, 3):
        return (*made, None)[:3]
    raise ScheduleError(
        f"te.decl_tensor_intrin {name}: it must return the body, or (body, reset, update)"
    )


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
        """Return a function that reads an element of the region of an intrinsic's input."""
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
