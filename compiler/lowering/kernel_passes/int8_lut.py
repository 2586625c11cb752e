"""Compute functions from one byte to one byte with a lookup table in the kernel.

    out[i] = uint8(clip(round(silu(float32(x) * a - b) / c)))      x uint8
    out[i] = table(x)

An example is a quantized activation after a convolution: 256 values, computed by the build. CPUs
with AVX512-VBMI look up 16 or 64 of them in five instructions. Before TVM's passes, an intrinsic
call represents the table, and TVM vectorizes the call. After the passes it becomes a function that
is given to LLVM as IR text and inlined.
"""

from __future__ import annotations

import functools
import hashlib
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import te, tirx
from tvm.ir import Call, TensorLoad
from tvm.target import Target, codegen

from ...primfuncs.query import map_primfuncs, op_name, with_llvm

Expr = Any

_INTRINSIC = "llvm.x86.avx512.vpermi2var.qi.512"
_LANES, _MOST_LANES = 16, 64
_LEAST_OPERATIONS = 12  # minimum for a table: a lookup takes the time of eight
_OPERATIONS = (
    *(tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Max, tirx.Min, tirx.Select),
    *(tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE, Call),
)

_VECTOR = """
declare <64 x i8> @{intrinsic}(<64 x i8>, <64 x i8>, <64 x i8>)
define linkonce_odr <16 x i8> @{name}(<16 x i32> %at) alwaysinline {{
  %bytes = bitcast <16 x i32> %at to <64 x i8>
  %lower = call <64 x i8> @{intrinsic}(<64 x i8> {0}, <64 x i8> %bytes, <64 x i8> {1})
  %upper = call <64 x i8> @{intrinsic}(<64 x i8> {2}, <64 x i8> %bytes, <64 x i8> {3})
  %is_upper = icmp ugt <16 x i32> %at, splat (i32 127)
  %a = bitcast <64 x i8> %lower to <16 x i32>
  %b = bitcast <64 x i8> %upper to <16 x i32>
  %both = select <16 x i1> %is_upper, <16 x i32> %b, <16 x i32> %a
  %result = trunc <16 x i32> %both to <16 x i8>
  ret <16 x i8> %result
}}
"""
_WHOLE = """
declare <64 x i8> @{intrinsic}(<64 x i8>, <64 x i8>, <64 x i8>)
define linkonce_odr <64 x i8> @{name}(<64 x i32> %at) alwaysinline {{
  %bytes = trunc <64 x i32> %at to <64 x i8>
  %lower = call <64 x i8> @{intrinsic}(<64 x i8> {0}, <64 x i8> %bytes, <64 x i8> {1})
  %upper = call <64 x i8> @{intrinsic}(<64 x i8> {2}, <64 x i8> %bytes, <64 x i8> {3})
  %is_upper = icmp slt <64 x i8> %bytes, zeroinitializer
  %result = select <64 x i1> %is_upper, <64 x i8> %upper, <64 x i8> %lower
  ret <64 x i8> %result
}}
"""
_SCALAR = """
@{name}_values = linkonce_odr constant [256 x i8] {0}
define linkonce_odr i8 @{name}(i32 %at) alwaysinline {{
  %place = getelementptr inbounds [256 x i8], ptr @{name}_values, i32 0, i32 %at
  %result = load i8, ptr %place
  ret i8 %result
}}
"""


def fold_byte_tables(lower: tvm.transform.Pass) -> tvm.transform.Pass:
    """Run the passes of `lower` with tables represented by calls."""

    @tvm.transform.module_pass(opt_level=0, name="FoldByteTables")
    def fold(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        found: list[tuple[Expr, Expr]] = []
        hidden = map_primfuncs(mod, lambda func: _hidden(func, found))
        if not found:
            return lower(mod)
        tables = _computed(found)
        return map_primfuncs(lower(hidden), lambda func: _shown(func, tables))

    return fold


def _hidden(func: tirx.PrimFunc, found: list[tuple[Expr, Expr]]) -> tirx.PrimFunc:
    """Replace tables by calls; `found` receives each expression and the byte it depends on."""
    target = func.attrs["target"] if func.attrs and "target" in func.attrs else None
    if not isinstance(target, Target) or not _looks_up(target):
        return func

    def cast(node: tirx.Cast) -> Expr:
        byte = _only_byte(node) if _dtype(node) == "uint8" else None
        if byte is None:
            return node
        place = next((i for i, each in enumerate(found) if _equal(each[0], node)), len(found))
        if place == len(found):
            found.append((node, byte))
        at = tirx.Cast("int32", byte)
        return tirx.call_llvm_pure_intrin("uint8", _number(), tirx.const(place, "int32"), at)

    return func.with_body(tvm_ffi.structural_map(func.body, (tirx.Cast, cast), order="pre"))


def _only_byte(node: tirx.Cast) -> Expr | None:
    """The only byte that a costly expression depends on, if there is one."""
    found = _read_by(node.value)
    if found is None or found[1] < _LEAST_OPERATIONS or not found[0]:
        return None
    byte, *others = found[0]
    return byte if all(_equal(byte, each) for each in others) else None


def _read_by(value: Expr) -> tuple[list[Expr], int] | None:
    """Bytes that an expression is computed of, and its operations; None if of other things too."""
    read: list[Expr] = []
    others: list[Expr] = []
    bound: set[Expr] = set()
    operations = 0

    def load(part: TensorLoad, _: Any) -> None:
        (read if _dtype(part) == "uint8" else others).append(part)

    def cast(part: tirx.Cast, visitor: Any) -> None:
        nonlocal operations
        if _dtype(part) != "uint8":
            visitor.default_visit(part)
            return
        inside = _read_by(part.value)
        read.extend([part] if inside is None else inside[0])
        operations += 0 if inside is None else inside[1]

    def let(part: tirx.Let, visitor: Any) -> None:
        bound.add(part.var)
        visitor.default_visit(part)

    def operation(part: Expr, visitor: Any) -> None:
        nonlocal operations
        operations += 1
        visitor.default_visit(part)

    visits = [(TensorLoad, load), (tirx.Cast, cast), (tirx.Let, let)]
    visits += [(tirx.Var, lambda part, _: others.append(part))]
    tvm_ffi.structural_visit(value, [*visits, *((kind, operation) for kind in _OPERATIONS)])
    return (read, operations) if bound.issuperset(others) else None


def _computed(found: list[tuple[Expr, Expr]]) -> list[np.ndarray]:
    """Evaluate expressions for all values of their bytes."""

    def table(number: int, at: Any) -> Expr:
        expr, byte = found[number]
        swap = [
            (kind, lambda part: at.astype("uint8") if _equal(part, byte) else part)
            for kind in (tirx.Cast, TensorLoad)
        ]
        return tvm_ffi.structural_map(expr, swap, order="pre")

    tensors = [te.compute((256,), functools.partial(table, i)) for i in range(len(found))]
    run = tvm.compile(te.create_prim_func(tensors), target="llvm")
    values = [tvm.runtime.tensor(np.zeros(256, "uint8")) for _ in found]
    run(*values)
    return [each.numpy() for each in values]


def _shown(func: tirx.PrimFunc, tables: list[np.ndarray]) -> tirx.PrimFunc:
    """Replace the calls by functions with the tables."""
    texts: dict[str, str] = {}

    def call(node: Call) -> Expr:
        if op_name(node) != "tirx.call_llvm_pure_intrin" or int(node.args[0]) != _number():
            return node
        _, place, at = node.args
        lanes = tvm.DataType(_dtype(node)).lanes
        values = tables[int(place.value if isinstance(place, tirx.Broadcast) else place)]
        digest = hashlib.sha256(values.tobytes()).hexdigest()[:16]
        if lanes in (_LANES, _MOST_LANES):
            name = f"baton_table_{digest}_{lanes}"
            quarters = [_text(part) for part in np.split(values, 4)]
            text = _VECTOR if lanes == _LANES else _WHOLE
            texts[name] = text.format(*quarters, name=name, intrinsic=_INTRINSIC)
            return tirx.call_pure_extern(_dtype(node), name, at)
        if lanes % _LANES == 0:
            starts = range(0, lanes, _LANES)
            parts = [call(_lanes_of(node, place, at, start)) for start in starts]
            return tirx.Shuffle(parts, [tirx.const(lane, "int32") for lane in range(lanes)])
        name = f"baton_table_{digest}_1"
        texts[name] = _SCALAR.format(_text(values), name=name)
        if lanes == 1:
            return tirx.call_pure_extern("uint8", name, at)
        each = [tirx.Shuffle([at], [tirx.const(lane, "int32")]) for lane in range(lanes)]
        made = [tirx.call_pure_extern("uint8", name, one) for one in each]
        return tirx.Shuffle(made, [tirx.const(lane, "int32") for lane in range(lanes)])

    body = tvm_ffi.structural_map(func.body, (Call, call))
    for name in sorted(texts):
        body = with_llvm(body, texts[name])
    return func.with_body(body)


def _lanes_of(node: Call, place: Expr, at: Expr, start: int) -> Call:
    """The call for 16 lanes of its vector."""
    lanes = [tirx.const(start + lane, "int32") for lane in range(_LANES)]
    number = place.value if isinstance(place, tirx.Broadcast) else place
    arguments = (tirx.Broadcast(number, _LANES), tirx.Shuffle([at], lanes))
    return tirx.call_llvm_pure_intrin(f"uint8x{_LANES}", _number(), *arguments)


def _text(values: np.ndarray) -> str:
    """A constant as LLVM writes it, for a vector or an array."""
    numbers = ", ".join(f"i8 {int(value)}" for value in values.view("int8"))
    return f"<{numbers}>" if len(values) < 256 else f"[{numbers}]"


@functools.cache
def _number() -> int:
    return int(codegen.llvm_lookup_intrinsic_id(_INTRINSIC))


def _looks_up(target: Target) -> bool:
    if target.kind.name != "llvm":
        return False
    return "avx512vbmi" in {str(name) for name in codegen.llvm_get_cpu_features(target)}


def _equal(one: Expr, other: Expr) -> bool:
    return bool(tvm_ffi.structural_equal(one, other))


def _dtype(expr: Expr) -> str:
    return str(expr.ty.dtype)
