"""Keys of auto_scheduler workloads: what makes two unscheduled TIR functions the same task.

A key is text of three parts, "<family>.<structure>.<shapes>":

* family: hash of the blocks' iterator kinds and of the operands' ranks and data types. Two
  functions of one family differ at most in extents and constants, as a convolution on
  another image size does;
* structure: TVM's structural hash of the whole function;
* shapes: of the operands in order, "1x3x224x224,64x3x7x7,1x64x112x112".

Names of variables, buffers, blocks and of the function itself take no part, nor do the
function's attributes.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

import tvm_ffi
from tvm.s_tir import SBlock
from tvm.tirx import IntImm, PrimFunc

from schedules.tir_visit import nodes_of

from ...errors import RecordError

ENTRY = "main"


def workload_key(func: PrimFunc) -> str:
    """Key of an unscheduled function, the same in every process; RecordError if it is dynamic."""
    operands = [[len(_shape(param)), str(param.dtype)] for param in func.params]
    every = nodes_of(func.body, SBlock)
    blocks = [[int(var.iter_type) for var in block.iter_vars] for block in every]
    family = hashlib.blake2b(json.dumps([operands, blocks]).encode(), digest_size=8).hexdigest()
    structure = tvm_ffi.structural_hash(canonical(func)) & (2**64 - 1)
    shapes = ",".join("x".join(map(str, _shape(param))) for param in func.params)
    return f"{family}.{structure:016x}.{shapes}"


def canonical(func: PrimFunc) -> PrimFunc:
    """The function as records describe it: named "main", blocks numbered, no other attributes.

    Traces name the blocks they schedule, and names depend on what an operator was called and
    on what else was fused, so records are written and replayed under numbers: b0, b1, ...
    """
    number = 0

    def rename(block: SBlock) -> SBlock:
        nonlocal number
        if block.name_hint == "root":
            return block
        number += 1
        return SBlock(
            block.iter_vars, block.reads, block.writes, f"b{number - 1}", block.body,
            block.init, block.alloc_buffers, block.match_buffers, block.annotations,
        )  # fmt: skip

    renamed = tvm_ffi.structural_map(func, (SBlock, rename))
    for name, _ in renamed.attrs.items() if renamed.attrs else ():
        if name != "s_tir":
            renamed = renamed.without_attr(name)
    return renamed.with_attrs({"global_symbol": ENTRY, "tirx.noalias": True})


def distance(wanted: str, recorded: str) -> float:
    """How well a record of one workload serves another: 1 is the same shapes, infinity never.

    The rule is Ansor's: within a family a record of smaller extents serves extents that are
    their multiples, and its cost counts as many times more.
    """
    family, _, shapes = _split(wanted)
    recorded_family, _, recorded_shapes = _split(recorded)
    if family != recorded_family or len(shapes) != len(recorded_shapes):
        return math.inf
    factor = 1.0
    for extent, recorded_extent in zip(shapes, recorded_shapes, strict=True):
        if recorded_extent == 0 or extent % recorded_extent:
            return math.inf if extent != recorded_extent else factor
        factor *= extent / recorded_extent
    return factor


def _split(key: str) -> tuple[str, str, list[int]]:
    """Split a key into parts with flat shapes. A key of another form is its own family."""
    parts = key.split(".")
    if len(parts) != 3:
        return key, "", []
    dims = parts[2].replace("x", ",").split(",")
    return parts[0], parts[1], [int(dim) for dim in dims if dim.isdecimal() and len(dim) < 19]


def _shape(param: Any) -> list[int]:
    dims = getattr(param, "shape", ())
    if not all(isinstance(dim, (int, IntImm)) for dim in dims):
        raise RecordError(f"operand {param} has a dimension that is not a constant: {list(dims)}")
    return [int(dim) for dim in dims]
