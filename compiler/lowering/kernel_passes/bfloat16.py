"""bfloat16 on CPUs: IEEE rounding, and LLVM's types for its instructions.

TVM computes bfloat16 in float32 and rounds on store. Its rounding truncates bits of a NaN that IEEE
rounding keeps. Before TVM's passes, `round_bfloat16` writes

    cast(cast(x, bfloat16), t)      ->  cast(rounded(x), t)
    buffer[i] = cast(x, bfloat16)   ->  buffer[i] = the upper 16 bits of rounded(x)

Scripts cast back and forth in one expression to see the precision loss; TVM would have left the
number unchanged. `rounded` rounds to nearest, ties to even, and keeps NaNs; AVX512-BF16 has a
vector instruction for it. A kernel's internal buffers, which TVM would make float32, hold uint16.

TVM's passes turn all bfloat16 into uint16. Its code generator has no bfloat16 type, which the
operands of LLVM's intrinsics need. After these passes, `use_bfloat16_instructions` therefore calls
functions on vectors of 16-bit integers, which are given to LLVM as IR text and inlined by it.
"""

from __future__ import annotations

import functools
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call, TensorLoad, Var
from tvm.target import Target, codegen

from schedules.tir_visit import nodes_of
from schedules.x86.machine.dot_product import has_bfloat16

from ...primfuncs.query import op_name, with_llvm

_DOT = "llvm.x86.avx512bf16.dpbf16ps.512"
_ROUND = "llvm.x86.avx512bf16.cvtneps2bf16.{}"
_ONE_VECTOR, _TWO_VECTORS = (8, 16), 32
_ROUNDED_LANES = (*_ONE_VECTOR, _TWO_VECTORS)  # other lane counts are rounded as 32-bit integers


def _numbers(first: int, end: int) -> str:
    return ", ".join(f"i32 {number}" for number in range(first, end))


_DOT_TEXT = f"""
declare <16 x float> @{_DOT}(<16 x float>, <32 x bfloat>, <32 x bfloat>)
define linkonce_odr <16 x float> @baton_dot_bfloat16(
    <16 x float> %sums, <32 x i16> %x, <32 x i16> %w) alwaysinline {{
  %pairs = bitcast <32 x i16> %x to <32 x bfloat>
  %weights = bitcast <32 x i16> %w to <32 x bfloat>
  %made = call <16 x float> @{_DOT}(
    <16 x float> %sums, <32 x bfloat> %pairs, <32 x bfloat> %weights)
  ret <16 x float> %made
}}
"""
_ROUND_TEXT = """
declare <{lanes} x bfloat> @{intrinsic}(<{lanes} x float>)
define linkonce_odr <{lanes} x i16> @baton_round_bfloat16_{lanes}(
    <{lanes} x float> %x) alwaysinline {{
  %rounded = call <{lanes} x bfloat> @{intrinsic}(<{lanes} x float> %x)
  %bits = bitcast <{lanes} x bfloat> %rounded to <{lanes} x i16>
  ret <{lanes} x i16> %bits
}}
"""
_ROUND_HALVES_TEXT = f"""
declare <16 x bfloat> @{_ROUND.format(512)}(<16 x float>)
define linkonce_odr <32 x i16> @baton_round_bfloat16_32(<32 x float> %x) alwaysinline {{
  %low = shufflevector <32 x float> %x, <32 x float> poison, <16 x i32> <{_numbers(0, 16)}>
  %high = shufflevector <32 x float> %x, <32 x float> poison, <16 x i32> <{_numbers(16, 32)}>
  %first = call <16 x bfloat> @{_ROUND.format(512)}(<16 x float> %low)
  %second = call <16 x bfloat> @{_ROUND.format(512)}(<16 x float> %high)
  %both = shufflevector <16 x bfloat> %first, <16 x bfloat> %second,
    <32 x i32> <{_numbers(0, 32)}>
  %bits = bitcast <32 x bfloat> %both to <32 x i16>
  ret <32 x i16> %bits
}}
"""
_TEXTS = {
    "baton_dot_bfloat16": _DOT_TEXT,
    **{
        f"baton_round_bfloat16_{lanes}": _ROUND_TEXT.format(
            lanes=lanes, intrinsic=_ROUND.format(32 * lanes)
        )
        for lanes in _ONE_VECTOR
    },
    f"baton_round_bfloat16_{_TWO_VECTORS}": _ROUND_HALVES_TEXT,
}
"""Functions by name, in LLVM's language."""


@tvm.tirx.transform.prim_func_pass(opt_level=0, name="RoundBFloat16")
def round_bfloat16(func: tirx.PrimFunc, _: tvm.IRModule, __: Any) -> tirx.PrimFunc:
    """The pass, on functions before they are lowered."""
    target = func.attrs["target"] if func.attrs and "target" in func.attrs else None
    body = tvm_ffi.structural_map(func.body, (tirx.Let, _legal_value))
    body = tvm_ffi.structural_map(body, (tirx.Cast, _rounding))
    if isinstance(target, Target) and target.kind.name == "llvm":
        store = functools.partial(_stored, has_bfloat16(target))
        body = tvm_ffi.structural_map(body, (tirx.BufferStore, store))
        body = _with_bits(body)
    return func.with_body(body)


@tvm.tirx.transform.prim_func_pass(opt_level=0, name="UseBFloat16Instructions")
def use_bfloat16_instructions(func: tirx.PrimFunc, _: tvm.IRModule, __: Any) -> tirx.PrimFunc:
    """The pass, on lowered functions in which bfloat16 are uint16."""
    used: set[str] = set()
    body = tvm_ffi.structural_map(func.body, (Call, functools.partial(_called, used)))
    for name in sorted(used):
        body = with_llvm(body, _TEXTS[name])
    return func.with_body(body)


def _legal_value(node: tirx.Let) -> Any:
    """Compute a variable's value in float32: TVM's pass does not visit these values."""
    value = tvm_ffi.structural_map(node.value, (tirx.Cast, _computed_wide))
    return node if value is node.value else tirx.Let(node.var, value, node.body)


def _computed_wide(node: tirx.Cast) -> Any:
    """cast(a + b, float32)  ->  cast(a, float32) + cast(b, float32), where a and b are bfloat16.

    A loaded value becomes its bits, shifted left by 16.
    """
    inner = node.value
    if _dtype(inner) != "bfloat16" or _dtype(node) != "float32":
        return node
    if isinstance(inner, TensorLoad):
        bits = tirx.Cast("uint32", tirx.reinterpret("uint16", inner))
        return tirx.reinterpret("float32", bits << tirx.const(16, "uint32"))

    def wide(each: Any) -> Any:
        return _computed_wide(tirx.Cast("float32", each))

    if isinstance(inner, _BINARY):
        return type(inner)(wide(inner.a), wide(inner.b))
    if isinstance(inner, tirx.Select):
        return tirx.Select(inner.condition, wide(inner.true_value), wide(inner.false_value))
    if op_name(inner) == "tirx.if_then_else":
        condition, *values = inner.args
        return tirx.if_then_else(condition, *map(wide, values))
    return node


_BINARY = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Min, tirx.Max)


def _rounding(node: tirx.Cast) -> Any:
    inner = node.value
    if not isinstance(inner, tirx.Cast) or _dtype(inner) != "bfloat16":
        return node
    if _dtype(inner.value) == "bfloat16" or _dtype(node) == "bfloat16":
        return node
    return tirx.Cast(_dtype(node), _rounded(tirx.Cast("float32", inner.value)))


def _stored(has_instruction: bool, node: tirx.BufferStore) -> Any:
    """Store the bits of a rounded number, unless it is a bfloat16 that was loaded."""
    if str(node.buffer.dtype) != "bfloat16":
        return node
    moved = _moved(node.value)
    if moved is not None:
        return tirx.BufferStore(node.buffer, tirx.reinterpret("bfloat16", moved), node.indices)
    is_cast = isinstance(node.value, tirx.Cast) and _dtype(node.value.value) == "float32"
    value = node.value.value if is_cast else tirx.Cast("float32", node.value)
    if has_instruction:
        bits = tirx.call_llvm_pure_intrin("uint16", _number_of(_ROUND.format(512)), value)
    else:
        bits = _upper_bits(value)
    return tirx.BufferStore(node.buffer, tirx.reinterpret("bfloat16", bits), node.indices)


def _moved(value: Any) -> Any:
    """The bits of a loaded or constant value, also inside a select; None for others."""
    if isinstance(value, TensorLoad):
        return tirx.reinterpret("uint16", value)
    if isinstance(value, tirx.FloatImm) and float(value.value) == 0:
        return tirx.const(0, "uint16")
    if op_name(value) == "tirx.if_then_else":
        condition, *values = value.args
        bits = [_moved(each) for each in values]
        return None if None in bits else tirx.if_then_else(condition, *bits)
    return None


def _with_bits(body: tirx.Stmt) -> tirx.Stmt:
    """Change internal bfloat16 buffers of the body to uint16."""
    bits: dict[Any, Any] = {}
    for block in nodes_of(body, s_tir.SBlock):
        for buffer in block.alloc_buffers:
            _add(bits, buffer)
    if not bits:
        return body
    for region in nodes_of(body, s_tir.MatchBufferRegion):
        if region.source.source in bits:
            _add(bits, region.buffer)
    mapped = [(Var, lambda var: bits.get(var, var)), (TensorLoad, _loaded), _STORED]
    return tvm_ffi.structural_map(body, mapped)


def _add(bits: dict[Any, Any], buffer: Any) -> None:
    if str(buffer.dtype) == "bfloat16":
        bits[buffer] = tirx.decl_buffer(
            buffer.shape,
            "uint16",
            buffer.name,
            strides=buffer.strides,
            elem_offset=buffer.elem_offset,
            scope=buffer.scope(),
            data_alignment=buffer.data_alignment,
            offset_factor=buffer.offset_factor,
            layout=None,
        )


def _loaded(load: TensorLoad) -> Any:
    if str(load.source.dtype) != "uint16" or not _dtype(load).startswith("bfloat16"):
        return load
    return tirx.reinterpret(_dtype(load), tirx.BufferLoad(load.source, load.indices))


def _stored_bits(node: tirx.BufferStore) -> Any:
    if str(node.buffer.dtype) != "uint16" or _dtype(node.value) != "bfloat16":
        return node
    return tirx.BufferStore(node.buffer, tirx.reinterpret("uint16", node.value), node.indices)


_STORED = (tirx.BufferStore, _stored_bits)


def _called(used: set[str], call: Call) -> Any:
    if op_name(call) != "tirx.call_llvm_pure_intrin":
        return call
    number, *operands = call.args
    if int(number) == _number_of(_DOT):
        name = "baton_dot_bfloat16"
    elif int(number) == _number_of(_ROUND.format(512)):
        lanes = tvm.DataType(_dtype(call)).lanes
        if lanes not in _ROUNDED_LANES:
            return _upper_bits(operands[0])
        name = f"baton_round_bfloat16_{lanes}"
    else:
        return call
    used.add(name)
    return tirx.call_pure_extern(_dtype(call), name, *operands)


@functools.cache
def _number_of(intrinsic: str) -> int:
    return int(codegen.llvm_lookup_intrinsic_id(intrinsic))


def _dtype(expr: Any) -> str:
    return str(expr.ty.dtype)


def _upper_bits(value: Any) -> Any:
    """Round a float32, or a vector, to the nearest bfloat16, as uint16."""
    bits = tirx.reinterpret(_like("uint32", value), _rounded(value))
    return tirx.Cast(_like("uint16", value), tirx.shift_right(bits, _word(16, value)))


def _rounded(value: Any) -> Any:
    """The nearest float32 whose lower 16 bits are zero; NaNs stay NaNs."""
    bits = tirx.reinterpret(_like("uint32", value), value)
    last = tirx.bitwise_and(tirx.shift_right(bits, _word(16, value)), _word(1, value))
    nearest = tirx.bitwise_and(bits + _word(0x7FFF, value) + last, _word(0xFFFF0000, value))
    # A comparison of the number with itself would be simplified to true.
    is_nan = tirx.bitwise_and(bits, _word(0x7FFFFFFF, value)) > _word(0x7F800000, value)
    quiet = tirx.bitwise_or(bits, _word(0x400000, value))
    return tirx.reinterpret(_dtype(value), tirx.Select(is_nan, quiet, nearest))


def _word(number: int, like: Any) -> Any:
    word = tirx.const(number, "uint32")
    lanes = tvm.DataType(_dtype(like)).lanes
    return word if lanes == 1 else tirx.Broadcast(word, lanes)


def _like(scalar: str, value: Any) -> str:
    """A type with as many lanes as a value."""
    lanes = tvm.DataType(_dtype(value)).lanes
    return scalar if lanes == 1 else f"{scalar}x{lanes}"
