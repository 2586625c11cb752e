"""The functions that AMX kernels call, in LLVM's language, which sets up the tiles by itself.

    baton_amx_int8(sums, bytes from row to row, data, bytes from row to row, panel, rows, steps)

adds, for up to 32 rows, to 32 columns of sums what `schedules.x86.amx` describes. Linux gives a
process the registers of tiles when it asks for them, which the first call does.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm.ir import Call, Op

from schedules.nodes import nodes_of
from schedules.x86.amx import INSTRUCTIONS

_ASK = """
@baton_amx_is_ours = linkonce_odr global i8 0
define linkonce_odr i32 @{name}(
    ptr %c, i64 %of_c, ptr %a, i64 %of_a, ptr %b, i32 %rows, i32 %steps) {{
  %is_ours = load i8, ptr @baton_amx_is_ours
  %is_known = icmp ne i8 %is_ours, 0
  br i1 %is_known, label %multiply, label %ask
ask: ; arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)
  %got = call i64 asm sideeffect "syscall",
    "={{rax}},0,{{rdi}},{{rsi}},~{{rcx}},~{{r11}},~{{memory}},~{{dirflag}},~{{fpsr}},~{{flags}}"(
    i64 158, i64 4131, i64 18)
  store i8 1, ptr @baton_amx_is_ours
  br label %multiply
multiply:
  call void @{name}_tiles(ptr %c, i64 %of_c, ptr %a, i64 %of_a, ptr %b, i32 %rows, i32 %steps)
  ret i32 0
}}
"""

_DECLARATIONS = """
declare x86_amx @llvm.x86.tileloadd64.internal(i16, i16, ptr, i64)
declare void @llvm.x86.tilestored64.internal(i16, i16, ptr, i64, x86_amx)
declare x86_amx @llvm.x86.{instruction}.internal(i16, i16, i16, x86_amx, x86_amx, x86_amx)
"""

_BYTES = 64  # of a row of a tile
_PANEL_ROW = 128  # bytes: 32 columns of four bytes


def _tiles(name: str, instruction: str) -> str:
    """The function for one row of tiles, or for two."""
    return f"""
define linkonce_odr void @{name}_tiles(
    ptr %c, i64 %of_c, ptr %a, i64 %of_a, ptr %b, i32 %rows, i32 %steps) noinline {{
  %are_two = icmp sgt i32 %rows, 16
  %upper = select i1 %are_two, i32 16, i32 %rows
  %lower = sub i32 %rows, 16
  %m0 = trunc i32 %upper to i16
  %m1 = trunc i32 %lower to i16
  br i1 %are_two, label %two, label %one
{_body("one", instruction, 1)}
{_body("two", instruction, 2)}
}}
"""


def _body(block: str, instruction: str, rows_of_tiles: int) -> str:
    """Sums are loaded, all steps are added to them, and they are stored."""
    tiles = [(i, j) for i in range(rows_of_tiles) for j in range(2)]
    p = f"%{block}"

    def load(result: str, rows: str, pointer: str, stride: str) -> str:
        return (
            f"  {result} = call x86_amx @llvm.x86.tileloadd64.internal("
            f"i16 {rows}, i16 {_BYTES}, ptr {pointer}, i64 {stride})"
        )

    lines = [f"{block}:", f"  {p}.ca0 = getelementptr i8, ptr %c, i64 0"]
    lines += [f"  {p}.below = mul i64 %of_c, 16", f"  {p}.a_below = mul i64 %of_a, 16"]
    lines += [f"  {p}.ca1 = getelementptr i8, ptr %c, i64 {p}.below"]
    for i, j in tiles:
        lines += [f"  {p}.c{i}{j} = getelementptr i8, ptr {p}.ca{i}, i64 {_BYTES * j}"]
        lines += [load(f"{p}.s{i}{j}", f"%m{i}", f"{p}.c{i}{j}", "%of_c")]
    lines += [f"  br label {p}.loop", f"{block}.loop:"]
    lines += [f"  {p}.step = phi i32 [ 0, {p} ], [ {p}.next, {p}.loop ]"]
    for i, j in tiles:
        lines += [f"  {p}.t{i}{j} = phi x86_amx [ {p}.s{i}{j}, {p} ], [ {p}.u{i}{j}, {p}.loop ]"]
    lines += [f"  {p}.wide = zext i32 {p}.step to i64"]
    lines += [f"  {p}.at = mul i64 {p}.wide, {_BYTES}", f"  {p}.bt = mul i64 {p}.wide, 2048"]
    lines += [f"  {p}.a0 = getelementptr i8, ptr %a, i64 {p}.at"]
    lines += [f"  {p}.a1 = getelementptr i8, ptr {p}.a0, i64 {p}.a_below"]
    lines += [f"  {p}.b0 = getelementptr i8, ptr %b, i64 {p}.bt"]
    lines += [f"  {p}.b1 = getelementptr i8, ptr {p}.b0, i64 {_BYTES}"]
    lines += [load(f"{p}.x{i}", f"%m{i}", f"{p}.a{i}", "%of_a") for i in range(rows_of_tiles)]
    lines += [load(f"{p}.w{j}", "16", f"{p}.b{j}", str(_PANEL_ROW)) for j in range(2)]
    lines += [
        f"  {p}.u{i}{j} = call x86_amx @llvm.x86.{instruction}.internal(i16 %m{i}, i16 {_BYTES}, "
        f"i16 {_BYTES}, x86_amx {p}.t{i}{j}, x86_amx {p}.x{i}, x86_amx {p}.w{j})"
        for i, j in tiles
    ]
    lines += [f"  {p}.next = add i32 {p}.step, 1"]
    lines += [f"  {p}.is_over = icmp eq i32 {p}.next, %steps"]
    lines += [f"  br i1 {p}.is_over, label {p}.end, label {p}.loop", f"{block}.end:"]
    lines += [
        f"  call void @llvm.x86.tilestored64.internal(i16 %m{i}, i16 {_BYTES}, "
        f"ptr {p}.c{i}{j}, i64 %of_c, x86_amx {p}.u{i}{j})"
        for i, j in tiles
    ]
    return "\n".join([*lines, "  ret void"])


TILES = {
    name: _DECLARATIONS.format(instruction=instruction) + _tiles(name, instruction)
    for name, instruction in INSTRUCTIONS.items()
}
"""What multiplies, by the name of the function that calls it."""


def import_tiles() -> tvm.transform.Pass:
    """The pass, on lowered functions."""

    @tvm.tirx.transform.prim_func_pass(opt_level=0, name="ImportTiles")
    def attach(func: tirx.PrimFunc, _: tvm.IRModule, __: Any) -> tirx.PrimFunc:
        used = {
            str(call.args[0].value)
            for call in nodes_of(func.body, Call)
            if isinstance(call.op, Op) and call.op.name == "tirx.call_extern"
        }
        body = func.body
        for name in sorted(used & TILES.keys()):
            text = tvm.ir.StringImm(_ASK.format(name=name) + TILES[name])
            body = tirx.AttrStmt(tirx.const(0, "int32"), "pragma_import_llvm", text, body)
        return func.with_body(body) if body is not func.body else func

    return attach
