"""`te.decl_tensor_intrin`: a computation and the instructions that do it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from tvm import te, tirx
from tvm.ir import is_prim_expr
from tvm.runtime import ObjectConvertible
from tvm.te import Tensor
from tvm.te.tensor import TensorSlice
from tvm.tirx import IterVar

from ...errors import ScheduleError


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
    body, init, update = (None if part is None else _statement(part) for part in _three(name, made))
    return TensorIntrin(name, op, tuple(inputs), tuple(buffers), scalars, body, init, update)


def _three(name: str, made: Any) -> tuple[Any, ...]:
    if not isinstance(made, (tuple, list)):
        return (made, None, None)
    if len(made) in (2, 3):
        return (*made, None)[:3]
    raise ScheduleError(
        f"te.decl_tensor_intrin {name}: it must return the body, or (body, reset, update)"
    )


def _statement(value: Any) -> Any:
    return tirx.Evaluate(value) if is_prim_expr(value) else value
