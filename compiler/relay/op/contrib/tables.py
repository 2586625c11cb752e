"""Building blocks of pattern tables: operator chains and checks.

A backend consists of rows (name, pattern, check) for MergeComposite, and of single supported
operators. Each of Relay's compilers has a module in this package, imported on first use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

import tvm
from tvm import relax

from ....backends import Unsupported
from ....errors import RelayError
from ....support.scoped_context import scoped_value

Check = Callable[[Any], bool | Unsupported]
"""Check of the root of a match, or of a call; `Unsupported(reason)` rejects with a reason."""
Row = tuple[Any, ...]

_STEP = re.compile(r"(?P<names>[\w.|]+)(?:\((?P<operands>[c_]*)\))?(?P<optional>\??)\Z")


def chain(text: str, start: Any = None) -> Any:
    """Pattern of consecutive operators: "nn.conv2d(c) nn.bias_add|add(c)? nn.relu?".

    `text`: space-separated steps. A step is an operator or alternatives, with its further operands
    in parentheses: `c` a constant, `_` anything. A question mark makes a step optional. `start`:
    first operand of the first step; anything by default.
    """
    from ...dataflow_pattern import is_constant, is_op, wildcard

    pattern = wildcard() if start is None else start
    for step in text.split():
        found = _STEP.match(step)
        if found is None:
            raise RelayError(f"{step!r} is not a step of a chain of operators")
        operands = [
            is_constant() if letter == "c" else wildcard() for letter in found["operands"] or ""
        ]
        names = [is_op(name) for name in found["names"].split("|")]
        result: Any = names[0](pattern, *operands)
        for other in names[1:]:
            result = result | other(pattern, *operands)
        pattern = result | pattern if found["optional"] else result
    return pattern


def gelu(data: Any) -> Any:
    """Pattern of x / c * (erf + c) * c, `nn.gelu` as expanded by ONNX importers."""
    return chain("multiply(_)", product(data, chain("divide(_) erf add(_)", data)))


def swish(data: Any) -> Any:
    return product(data, chain("sigmoid", data))


def mish(data: Any) -> Any:
    return product(data, chain("exp add(_) log tanh", data))


def hard_swish(data: Any) -> Any:
    return product(data, chain("add(c) clip divide(c)", data))


def product(left: Any, right: Any) -> Any:
    """Pattern of the multiply of two patterns."""
    from ...dataflow_pattern import is_op

    return is_op("multiply")(left, right)


def shape(expr: Any) -> tuple[int, ...]:
    """Shape of an expression, -1 for dynamic extents; for a tuple, the first field's shape."""
    ty = expr.ty.fields[0] if isinstance(expr.ty, relax.TupleType) else expr.ty
    if ty.shape is None:
        return (-1,) * max(ty.ndim, 0)
    return tuple(int(v) if isinstance(v, tvm.tirx.IntImm) else -1 for v in ty.shape.values)


def dtype(expr: Any) -> str:
    ty = expr.ty.fields[0] if isinstance(expr.ty, relax.TupleType) else expr.ty
    return str(ty.dtype)


def is_constant_expr(expr: Any) -> bool:
    return isinstance(expr, tvm.ir.GenericConst)


def name_of(expr: Any) -> str:
    """Operator of a call, or of the call whose field is accessed; "" for other expressions."""
    if isinstance(expr, relax.TupleGetItem):
        expr = expr.tuple_value
    return str(expr.op.name) if isinstance(getattr(expr, "op", None), tvm.ir.Op) else ""


def inner(root: Any, name: str) -> Any:
    """Find a call of an operator upward in a chain, through first operands."""
    while name_of(root) != name:
        root = root.tuple_value if isinstance(root, relax.TupleGetItem) else root.args[0]
    return root


def tensors(call: Any) -> list[Any]:
    """Operands, with tuples flattened."""
    return [
        each
        for arg in call.args
        for each in (arg.fields if isinstance(arg, relax.Tuple) else [arg])
    ]


def has(call: Any, **wanted: Any) -> bool | Unsupported:
    """Whether attributes have these values; attributes that the operator lacks are ignored."""
    attrs = {str(key): value for key, value in call.attrs.items()}
    for key, value in wanted.items():
        if key in attrs and _plain(attrs[key]) != value:
            return Unsupported(f"{key} is {_plain(attrs[key])}; {value} works")
    return True


def needs(condition: object, reason: str) -> bool | Unsupported:
    """True if a condition holds, else its reason: `needs(rank == 4, "rank 4 works")`."""
    return True if condition else Unsupported(reason)


def attribute(call: Any, key: str, default: Any = None) -> Any:
    """Attribute value as plain Python."""
    attrs = {str(name): value for name, value in call.attrs.items()} if call.attrs else {}
    return _plain(attrs[key]) if attrs.get(key) is not None else default


def _plain(value: Any) -> Any:
    from ...dialect import plain

    return plain(value)


def is_depthwise(conv: Any) -> bool:
    """Whether a convolution is depthwise."""
    channels = shape(conv.args[0])[str(conv.attrs.data_layout).index("C")]
    return int(conv.attrs.groups) == channels > 1


def claim(compiler: str, operators: Mapping[str, Check | bool]) -> None:
    """Set the single calls that a compiler supports, unless users set `target.<compiler>`.

    `operators` maps operator names, separated by spaces, to a check of the call.
    """
    from ... import dialect

    for names, check in operators.items():
        for name in names.split():
            tvm.ir.register_op_attr(
                dialect.operator(name).name, f"target.{compiler}", _answer(check), 5
            )


def _answer(check: Check | bool) -> Check:
    return check if callable(check) else lambda _call: bool(check)


def has_code_generator(compiler: str) -> bool:
    """Whether the user registered a code generator for a backend; TVM and Baton have none."""
    return tvm.get_global_func(f"relay.ext.{compiler}", allow_missing=True) is not None


_UNMERGED = ("arm_compute_lib", "bnns", "cublas", "cudnn", "cutlass")
_without_steps: ContextVar[bool] = ContextVar("without_steps", default=False)


def without_steps() -> AbstractContextManager[bool]:
    """Let `partition` run only the passes that come before a pattern table."""
    return scoped_value(_without_steps, True)


def merges_regions(compiler: str) -> bool:
    """Whether a library's adjacent matches become one subgraph."""
    return compiler not in _UNMERGED


def partition(
    mod: tvm.IRModule,
    params: Mapping[str, Any] | None,
    compiler: str,
    table: Sequence[Row],
    first: Iterable[Any] = (),
    include_non_call_ops: bool = True,
    **options: Any,
) -> Any:
    """Partition a module for a compiler by its pattern table, at opt_level 3, with bound weights.

    `first`: passes, or names of passes of `relay.transform`. MergeComposite, AnnotateTarget,
    MergeCompilerRegions if the compiler merges, and PartitionGraph follow; the last has `options`.
    """
    from ....lowering.bind import bind_params
    from ... import transform

    passes = [getattr(transform, each)() if isinstance(each, str) else each for each in first]
    if not _without_steps.get():
        passes += (
            transform.MergeComposite(table),
            transform.AnnotateTarget(compiler, include_non_call_ops),
        )
        passes += [transform.MergeCompilerRegions()] if merges_regions(compiler) else []
        passes.append(transform.PartitionGraph(**options))
    if params:
        mod, _ = bind_params(mod, params)
    with tvm.transform.PassContext(opt_level=3):
        return tvm.transform.Sequential(passes)(mod)


def without_dropout() -> Any:
    """Create a pass that removes dropout for inference."""
    from ...nested_expressions import rewrite
    from ...transform.base import body_wise

    def change(_old: relax.Expr, new: relax.Expr) -> relax.Expr:
        field = isinstance(new, relax.TupleGetItem) and int(new.index) == 0
        return new.tuple_value.args[0] if field and name_of(new) == "nn.dropout" else new

    return body_wise("RemoveDropout", 0, lambda body: rewrite(body, change))
