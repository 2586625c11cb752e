"""Kernels built from old records have the loops that TVM 0.18 gave them."""

import json
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import tirx

from compiler.autotvm import decode
from compiler.autotvm.single_op_program import program_of
from compiler.lowering.graph_passes.fuse import fuse
from compiler.lowering.selection.select_implementations import select_implementations
from schedules import rules

FACTS = Path(__file__).parents[2] / "oracle" / "autotvm" / "loop_facts.json"
TARGET = tvm.target.Target({"kind": "llvm", "mcpu": "znver4"})  # what the records were made for
ROWS = json.loads(FACTS.read_text())


def loops(stmt):
    """[extent, kind, children] of every loop that runs more than once; a store is not a loop."""
    if isinstance(stmt, tirx.BufferStore):
        return [[1, "store", []]]
    if isinstance(stmt, tirx.For):
        below = loops(stmt.body)
        kind = tirx.ForKind(stmt.kind).name.lower()
        return [[int(stmt.extent), kind, below]] if int(stmt.extent) > 1 else below
    if isinstance(stmt, tirx.SeqStmt):
        return [node for part in stmt.seq for node in loops(part)]
    inner = getattr(stmt, "block", getattr(stmt, "body", None))
    return [] if inner is None else loops(inner)


def paths(nodes, merged, tensorized):
    """Loops around each statement, outermost first; a vectorized loop ends up innermost.

    With `merged`, neighbors of one kind count as one loop: TVM 0.18 fused them. With
    `tensorized`, vectorized loops are left out: instructions stand for them.
    """
    found = set()

    def walk(node, outer):
        extent, kind, below = node
        here = [*outer] if kind == "store" else [*outer, (extent, kind)]
        for child in below:
            walk(child, here)
        if not below:
            here.sort(key=lambda loop: loop[1] == "vectorized")
            if tensorized:
                here = [loop for loop in here if loop[1] != "vectorized"]
            found.add(tuple(merge(here) if merged else here))

    for node in nodes:
        walk(node, [])
    return found


def merge(path):
    out = []
    for extent, kind in path:
        if out and out[-1][1] == kind != "parallel":
            extent *= out.pop()[0]
        out.append((extent, kind))
    return out


def scheduled(row, target=TARGET):
    inp, _ = decode(json.dumps(row["record"]))

    def query(_, workload):
        return inp.config if workload[0] == inp.task.name else None

    program = program_of(inp.task, np.random.default_rng(0))
    module = select_implementations(program.mod, "main", target, query)
    module, *_ = fuse(module, target)
    done = [
        rules.schedule(func, target)
        for func in module.functions.values()
        if isinstance(func, tirx.PrimFunc)
    ]
    (found,) = [each for each in done if each.rule == inp.task.name]
    return found.func


@pytest.mark.parametrize("row", ROWS, ids=[row["record"]["input"][1] for row in ROWS])
def test_a_record_gives_the_loops_that_tvm_018_gave(row):
    task = row["record"]["input"][1]
    forms = task in ("dense_nopack.x86", "batch_matmul.x86"), task == "conv2d_NCHWc_int8.x86"
    assert paths(row["nests"], *forms) <= paths(loops(scheduled(row).body), *forms)


ODD = [["tile_ic", "sp", [-1, 8]], ["tile_oc", "sp", [-1, 12]], ["tile_ow", "sp", [-1, 3]]]


@pytest.mark.parametrize(
    "kernel, knob", [(1, ["tile_oh", "ot", 1]), (3, ["unroll_kw", "ot", True])]
)
@pytest.mark.parametrize("cpu, lanes", [("x86-64-v3", 4), ("x86-64-v4", 12)])
def test_a_block_of_twelve_is_three_vectors_where_vectors_have_no_masks(cpu, lanes, kernel, knob):
    data, weight = [1, 8, 9, 9], [24, 8, kernel, kernel]
    args = [["TENSOR", data, "float32"], ["TENSOR", weight, "float32"], [1, 1], [0, 0, 0, 0],
            [1, 1], "NCHW", "NCHW", "float32"]  # fmt: skip
    record = {
        "input": ["llvm", "conv2d_NCHWc.x86", args, {}],
        "config": {"index": 0, "code_hash": None, "entity": [*ODD, knob]},
        "result": [[1e-6], 0, 1.0, 1.0],
        "version": 0.2,
    }
    target = tvm.target.Target({"kind": "llvm", "mcpu": cpu})
    nests = loops(scheduled({"record": record}, target).body)
    vectors = {loop for path in paths(nests, False, False) for loop in path if "vec" in loop[1]}
    assert vectors == {(lanes, "vectorized")}
