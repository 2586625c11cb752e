"""`te.decl_tensor_intrin`: a computation and the instructions that do it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx
from tvm.ir import is_prim_expr

from ..errors import ScheduleError


@dataclass(frozen=True, eq=False)
class TensorIntrin:
    """What `Stage.tensorize` puts in place of loops.

    Attributes
    ----------
    op : te.ComputeOp
        What is computed.
    inputs : tuple of Tensor
    buffers : tuple of Buffer
        Of the inputs, then of the outputs.
    body, reduce_init, reduce_update : Stmt
        The whole; the start of a reduction; one step of it. The last two may be missing.
    """

    name: str
    op: Any
    inputs: tuple[Any, ...]
    buffers: tuple[Any, ...]
    scalar_params: tuple[Any, ...]
    body: Any
    reduce_init: Any
    reduce_update: Any

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raises: loops become the intrinsic by `tensorize`, not by a call."""
        raise ScheduleError(
            f"{self.name}(...): an intrinsic can't be called inside of te.compute; write the "
            "computation out and tensorize its stage"
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

    Parameters
    ----------
    op : te.ComputeOp
        What the intrinsic computes, on tensors of the intrinsic's shapes.
    fcompute : callable
        (input buffers, output buffers) -> the body, or (body, reset, update) for an intrinsic
        that does a part of a reduction.
    binds : dict of Tensor to Buffer, optional
        Buffers with strides or offsets of their own.
    default_buffer_params : dict, optional
        Of `tvm.tirx.decl_buffer`, for the others.

    Raises
    ------
    ScheduleError
        The operation is no `te.compute`, or `scalar_params` are asked for.
    """
    if not isinstance(op, te.ComputeOp):
        raise ScheduleError(f"te.decl_tensor_intrin {name}: {op!r} is not a te.compute operation")
    if scalar_params:
        raise ScheduleError(f"te.decl_tensor_intrin {name}: scalar_params are not supported")
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
    made = fcompute(buffers[: len(inputs)], buffers[len(inputs) :])
    parts = [None if part is None else _statement(part) for part in _three(name, made)]
    return TensorIntrin(name, op, tuple(inputs), tuple(buffers), (), *parts)


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
