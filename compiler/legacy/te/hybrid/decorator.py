"""`te.hybrid.script`: a function of loops, called with tensors or with arrays."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx
from tvm.ir import is_prim_expr
from tvm.te import Tensor, _ffi_api
from tvm_ffi import Array

from ....errors import ScheduleError
from ..dataflow import LOOPS
from .functions import EAGER
from .parser import Parser
from .source import Source, source_of


def script(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that makes an operation of TE of tensors, and computes of arrays.

    `function`: its text, in the hybrid language, is read; closures and globals are constants of it,
    and other hybrid functions. Returns a function of the same parameters. Called with tensors,
    variables, expressions, numbers and lists of these, it returns a tensor, or a list of them, and
    the operation's `axis` are its loops. Called without tensors and expressions, it runs as Python.
    """
    signature = inspect.signature(function)
    body = getattr(function, "__func__", function)
    eager = types.FunctionType(
        body.__code__,
        {**body.__globals__, **EAGER},
        body.__name__,
        body.__defaults__,
        body.__closure__,
    )

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not any(map(is_symbolic, [*args, *kwargs.values()])):
            return eager(*args, **kwargs)
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        return operation(hybrid_source(), list(given.arguments.values()))

    @functools.cache
    def hybrid_source() -> Source:
        return source_of(function)

    call.hybrid_source = hybrid_source  # type: ignore[attr-defined]
    return call


def operation(source: Source, arguments: Sequence[Any]) -> Any:
    """The outputs of the operation that a hybrid function is of these arguments.

    Raises ScheduleError: the function says something that is no part of the language.
    """
    tensors: list[Tensor] = []
    buffers: list[Any] = []

    def taken(value: Any) -> Any:
        if isinstance(value, Tensor):
            tensors.append(value)
            buffers.append(
                tirx.decl_buffer(value.shape, str(value.dtype), _name(value), layout=None)
            )
            return buffers[-1]
        if isinstance(value, (list, tuple, Array)):
            return [taken(each) for each in value]
        if isinstance(value, tirx.IntImm) and str(value.ty.dtype) == "int32":
            return int(value)
        if is_prim_expr(value) or isinstance(value, (int, float, str)):
            return value
        raise ScheduleError(
            f"hybrid.script {source.name}: a {type(value).__name__} can't be an argument beside "
            "tensors"
        )

    if len(arguments) != len(source.parameters):
        raise ScheduleError(
            f"hybrid.script {source.name} takes {len(source.parameters)} arguments, not "
            f"{len(arguments)}"
        )
    parser = Parser(source, [taken(each) for each in arguments])
    op = _ffi_api.ExternOp(
        source.name, "", {LOOPS: parser.loops}, tensors, buffers, parser.outputs, parser.statement()
    )
    outputs = [op.output(index) for index in range(len(parser.outputs))]
    return outputs[0] if len(outputs) == 1 else outputs


def _name(tensor: Tensor) -> str:
    index = int(tensor.value_index)
    return f"{tensor.op.name}.v{index}" if tensor.op.num_outputs > 1 else str(tensor.op.name)


def is_symbolic(value: Any) -> bool:
    """Whether a function's argument asks for an operation rather than for numbers."""
    if isinstance(value, (list, tuple)):
        return any(map(is_symbolic, value))
    return isinstance(value, (Tensor, Array)) or is_prim_expr(value)
