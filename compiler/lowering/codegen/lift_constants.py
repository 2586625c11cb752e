"""Lift the large constants of `main` into trailing parameters `p0`, `p1`, ...

    before   def main(x):         lv = R.call_tir(conv2d, (x, const[64, 3, 7, 7], const[]), ...)
    after    def main(x, p0):     lv = R.call_tir(conv2d, (x, p0, const[]), ...)

The weights then live outside the executable, in a section of the exported library that is
mapped when it is loaded, instead of inside the executable's constant pool, which is copied.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import GenericConst

from compiler.errors import BuildError

from ...ir.constants import tensor_types
from ...ir.loops import loop_of
from ...ir.rewrite import expressions_in, relax_functions

_FINGERPRINT_BYTES = 4096
_CALLS_OF_PACKED = ("relax.call_pure_packed", "relax.call_inplace_packed")
MIN_ELEMENTS = 64
"""The largest number of elements with which a constant stays in the executable."""


def lift_constants(
    mod: tvm.IRModule, min_elements: int = MIN_ELEMENTS
) -> tuple[tvm.IRModule, list[tuple[str, Any]]]:
    """Lift the tensor constants of `main` with more than `min_elements` elements.

    Constants of equal dtype, shape and bytes become one parameter. Smaller constants stay: they
    cost nothing in the executable's pool, and an argument costs a little on each call. Constants
    that `main` returns are lifted too: an executor copies results that are parameters, and does not
    know the addresses of the pool.

    Returns the module, whose attribute `num_input` is the number of the caller's inputs, and the
    names and values of the new parameters in order; the values are the constants themselves, not
    copies. Raises BuildError: there is no Relax function `main`, or another Relax function holds a
    large constant, which no caller could pass to it.
    """
    names = {gvar.name_hint: gvar for gvar in mod.get_global_vars()}
    if "main" not in names or not isinstance(mod[names["main"]], relax.Function):
        raise BuildError(
            "the module has no Relax function 'main' to lift constants from; its functions are "
            f"{sorted(names)}"
        )
    _require_no_large_constant_elsewhere(mod, min_elements)

    main = mod[names["main"]]
    lifter = _Lifter({var.name for var in main.params}, min_elements, returned_constants(main))
    body = lifter.visit_expr(main.body)
    if not lifter.lifted:
        return mod, []

    attrs = dict(main.attrs or {})
    attrs.setdefault("num_input", len(main.params))
    lifted_main = relax.Function(
        [*main.params, *(var for var, _ in lifter.lifted)],
        body,
        main.ret_ty,
        main.is_pure,
        tvm.ir.make_node("ir.DictAttrs", **attrs),
    )
    functions = dict(mod.functions_items())
    functions[names["main"]] = lifted_main
    result = tvm.IRModule(functions, attrs=mod.attrs)
    return result, [(var.name, value) for var, value in lifter.lifted]


def _require_no_large_constant_elsewhere(mod: tvm.IRModule, min_elements: int) -> None:
    """Raise for a large constant in a Relax function other than `main`, nested ones included."""
    for gvar, func in relax_functions(mod):
        if gvar.name_hint == "main":
            bodies = [nested.body for nested in expressions_in(func.body, relax.Function)]
            where = "a function inside 'main'"
        else:
            bodies = [func.body]
            where = f"function {gvar.name_hint!r}"
        for body in bodies:
            for constant in expressions_in(body, GenericConst):
                if is_large(constant, min_elements):
                    raise BuildError(
                        f"{where} of the module holds a constant of shape "
                        f"{tuple(constant.value.shape)} and dtype {constant.value.dtype}; only "
                        "constants of 'main' can become weights of the library, so pass it to the "
                        "function as an argument or compile the function to kernels first"
                    )


def is_large(constant: GenericConst, min_elements: int) -> bool:
    """Whether a constant does not belong in the executable's pool."""
    value = constant.value
    if not isinstance(value, tvm.runtime.Tensor):
        return False
    elements = int(np.prod(value.shape, dtype=np.int64))
    # The executable's pool can't be read back if it holds an empty tensor.
    return elements == 0 or elements > min_elements


def returned_constants(function: relax.Function) -> frozenset[GenericConst]:
    """The tensor constants that a function may return unchanged.

    The results of kernels and of Relax's operators are new tensors. Other callees (functions of the
    module, loops, packed functions) may return any argument that has the type of a result.
    """
    results = _kinds(function.ret_ty)
    values = {
        binding.var: binding.value
        for sequence in expressions_in(function, relax.SeqExpr)
        for block in sequence.blocks
        for binding in block.bindings
    }
    found: set[GenericConst] = set()
    seen: set[Any] = set()
    pending: list[Any] = [function.body]
    while pending:
        expr = pending.pop()
        if expr in seen:
            continue
        seen.add(expr)
        if isinstance(expr, GenericConst):
            found.update([expr] if results & _kinds(expr.ty) else [])
        elif isinstance(expr, relax.Var):
            pending.extend([values[expr]] if expr in values else [])
        elif isinstance(expr, relax.SeqExpr):
            pending.append(expr.body)
        elif isinstance(expr, relax.Tuple):
            pending.extend(expr.fields)
        elif isinstance(expr, relax.TupleGetItem):
            pending.append(expr.tuple_value)
        elif isinstance(expr, relax.If):
            pending.extend([expr.true_branch, expr.false_branch])
        elif (loop := loop_of(expr)) is not None:
            pending.extend([loop.states, loop.empty, loop.captured])  # not the loop condition
        elif isinstance(expr, tvm.ir.Call) and _may_return_arguments(expr):
            pending.extend(expr.args)
    return frozenset(found)


def _kinds(ty: Any) -> set[tuple[str, int]]:
    """Dtype and rank of the tensors of a type."""
    return {(str(each.dtype), each.ndim) for each in tensor_types(ty)}


def _may_return_arguments(call: tvm.ir.Call) -> bool:
    return not isinstance(call.op, tvm.ir.Op) or call.op.name in _CALLS_OF_PACKED


@relax.expr_functor.mutator
class _Lifter(relax.expr_functor.PyExprMutator):
    """Replaces large constants by new variables and records the pairs."""

    def __init__(
        self, taken: set[str], min_elements: int, returned: frozenset[GenericConst]
    ) -> None:
        super().__init__()
        self.lifted: list[tuple[Any, Any]] = []
        self._taken = taken
        self._min_elements = min_elements
        self._returned = returned
        self._by_fingerprint: dict[tuple[Any, ...], list[tuple[Any, np.ndarray]]] = {}

    def visit_generic_const_(self, constant: GenericConst) -> Any:
        if constant not in self._returned and not is_large(constant, self._min_elements):
            return constant
        data = bytes_of(constant.value)
        candidates = self._by_fingerprint.setdefault(_fingerprint(constant, data), [])
        for var, other in candidates:
            if data.ctypes.data == other.ctypes.data or np.array_equal(data, other):
                return var
        var = relax.Var(self._next_name(), constant.ty)
        candidates.append((var, data))
        self.lifted.append((var, constant.value))
        return var

    def _next_name(self) -> str:
        index = len(self.lifted)
        while f"p{index}" in self._taken:
            index += 1
        name = f"p{index}"
        self._taken.add(name)
        return name


def bytes_of(value: Any) -> np.ndarray:
    """The bytes of a tensor in host memory, without a copy if it is there already."""
    if value.device.type != "cpu":
        value = value.copyto(tvm.cpu())
    bits = value.dtype.bits * value.dtype.lanes
    nbytes = (int(np.prod(value.shape, dtype=np.int64)) * bits + 7) // 8
    return np.from_dlpack(value._create_view((nbytes,), "uint8"))


def _fingerprint(constant: GenericConst, data: np.ndarray) -> tuple[Any, ...]:
    """A key that equal constants share; unequal ones rarely do, so few need a full comparison."""
    digest = hashlib.blake2b(data[:_FINGERPRINT_BYTES].tobytes(), digest_size=16)
    digest.update(data[-_FINGERPRINT_BYTES:].tobytes())
    return str(constant.ty), str(constant.value.dtype), digest.digest()
