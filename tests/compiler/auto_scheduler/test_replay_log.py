"""Records replayed without a module: the compute that is taken, and why some fail."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tvm
from tvm import te, topi

from compiler.auto_scheduler.replay_log import Outcome, Rebuilder
from compiler.cli.replay_ansor import step_counts
from compiler.records.ansor.compute_variants import Candidate
from compiler.records.ansor.dag import read_dag
from compiler.records.ansor.dag_text import dag_hash, dag_text
from compiler.records.ansor.infer_compute import compute_of_key, computes_of_key
from compiler.records.ansor.packing import Packing
from compiler.records.ansor.replay import replay
from compiler.records.ansor.steps import parse_steps
from compiler.records.ansor.tvm_versions import names_of_eras
from compiler.records.auto_scheduler.record import parse_line
from compiler.target import parse

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
CUDA = "cuda -keys=cuda,gpu -arch=sm_80 -max_num_threads=1024 -thread_warp_size=32"


def candidate(tensors):
    dag = read_dag(te.create_prim_func(tensors))
    return Candidate(dag, tuple((i, Packing()) for i in range(len(dag.inputs))))


def row_sums(rows=64, columns=65536):
    """Stages: x, doubled, total."""
    x = te.placeholder((rows, columns), "float32", "x")
    doubled = te.compute((rows, columns), lambda i, j: x[i, j] * 2.0, name="doubled")
    k = te.reduce_axis((0, columns), "k")
    return [x, te.compute((rows,), lambda i: te.sum(doubled[i, k], axis=k), name="total")]


def record(steps, key='["row_sums"]', target=CUDA):
    task = [key, target, [-1, 16, 64, 49152, 2147483647, 1024, 8, 32], "", 0, []]
    row = {"i": [task, [[], steps]], "r": [[1e-3], 0, 0.1, 1], "v": "v0.6"}
    return parse_line(json.dumps(row))


def outcome(steps, computes=None):
    compute = candidate(row_sums())
    rebuilder = Rebuilder(parse("llvm"), None, computes or (lambda key: compute))
    return rebuilder.rebuild(record(steps))


def in_threads(threads, shared=0):
    """total in blocks of `threads` rows; `shared` elements of doubled are kept for a block."""
    steps = [["SP", 2, 0, 64, [threads], 1], ["AN", 2, 0, 5], ["AN", 2, 1, 6]]
    if shared:
        return [
            ["SP", 2, 1, 65536, [shared], 1], ["RE", 2, [0, 1, 2]], ["CHR", 1, "shared", [2]],
            ["CI", 1], ["AN", 3, 0, 5], ["SP", 2, 1, shared, [32], 1], ["CA", 2, 3, 1],
            ["AN", 2, 2, 6],
        ]  # fmt: skip
    return [["CI", 1], *steps]


@needs_nvcc
def test_a_record_within_the_limits_of_a_gpu_is_compiled():
    assert outcome(in_threads(64)).right


@needs_nvcc
def test_too_many_threads_are_told_although_nvcc_compiles_them():
    found = outcome(in_threads(4096))
    assert found.replayed and not found.right
    assert "its 4096 threads per block exceed 1024" in found.reason


@needs_nvcc
def test_too_much_shared_memory_is_told_in_the_words_of_the_compiler():
    found = outcome(in_threads(64, shared=16384))
    assert found.replayed and not found.right
    assert "uses too much shared data (0x10000 bytes, 0xc000 max)" in found.reason
    assert "in any TVM: its 65536 bytes of static shared memory exceed 49152" in found.reason


def test_of_computes_with_one_key_the_one_with_the_records_extents_is_taken():
    """Maximum pooling from 6x6 to 3x3 by windows of 2x2, 3x3 or 5x5."""
    data = te.placeholder((1, 6, 6, 8), "float32", "data")
    text_of = {}
    for window, padding in ((3, (1, 1, 1, 1)), (7, (3, 3, 3, 3))):
        pool = topi.nn.pool2d(
            data, [window] * 2, [2, 2], [1, 1], padding, "max", layout="NHWC"
        )  # fmt: skip
        text_of[window] = candidate([data, pool])
    hashes = {
        dag_hash(dag_text(each.dag, next(names_of_eras(each.dag)))) for each in text_of.values()
    }
    assert len(hashes) == 1, "windows of several sizes have one hash"
    key = json.dumps([hashes.pop(), [1, 6, 6, 8], [1, 3, 3, 8]])
    rebuilder = Rebuilder(parse("llvm"), None)
    for window in (7, 3, 7):
        steps = [["SP", 2, 4, window, [1], 1]]
        found = rebuilder.compute(record(steps, key, "llvm -keys=cpu"))
        assert found.dag.outputs[0].axes[4].extent == window
    assert len(list(computes_of_key(key))) >= 2
    assert compute_of_key(key) is not None


@pytest.mark.parametrize("iterator", [1, 2])
def test_partial_results_of_parts_that_do_not_divide_the_reduction_are_right(iterator):
    """9 sums in parts of 4, each computed where it is read."""
    x = te.placeholder((4, 9), "float32", "x")
    k = te.reduce_axis((0, 9), "k")
    total = te.compute((4,), lambda i: te.sum(x[i, k], axis=k), name="total")
    half = te.compute((4,), lambda i: total[i] / 2.0, name="half")
    # x, total.rf, total, half
    order = [["RE", 1, [0, 2, 1]]] if iterator == 2 else []
    steps = [["SP", 1, 1, 9, [4], 1], ["RF", 1, iterator, 1], *order,
             ["CA", 2, 3, 0], ["CA", 1, 2, 0], ["AN", 3, 0, 3]]  # fmt: skip
    compute = candidate([x, half])
    result = replay(compute.dag, parse_steps(steps))
    assert "do not divide the reduction" in result.notes[0]
    kernel = tvm.compile(result.func, target={"kind": "llvm"})
    values = np.arange(36, dtype="float32").reshape(4, 9)
    out = tvm.runtime.tensor(np.full(4, np.nan, "float32"))
    kernel(tvm.runtime.tensor(values), out)
    np.testing.assert_allclose(out.numpy(), values.sum(1) / 2)


@needs_nvcc
@pytest.mark.parametrize(("elements", "left_out"), [(4, 0), (18, 1)])
def test_elements_that_make_no_vector_of_cuda_are_copied_one_by_one(elements, left_out):
    """A copy to shared memory, by as many elements at once as a tuned record had."""
    x = te.placeholder((16, 1152), "float32", "x")
    compute = candidate([x, te.compute((16, 1152), lambda i, j: x[i, j] * 2.0, name="out")])
    steps = [["CHR", 0, "shared", [1]], ["AN", 2, 0, 5], ["SP", 2, 1, 1152, [64], 1],
             ["AN", 2, 2, 6], ["CA", 1, 2, 0], ["FU", 1, [0, 1]], ["SP", 1, 0, 1152, [elements], 1],
             ["AN", 1, 1, 2], ["SP", 1, 0, 0, [64], 1], ["AN", 1, 1, 6]]  # fmt: skip
    found = Rebuilder(parse("llvm"), None, lambda key: compute).rebuild(record(steps))
    assert found.right, found.reason
    assert sum("make no vector of a GPU" in note for note in found.notes) == left_out


SCRIPT = """
from tvm import auto_scheduler, te

@auto_scheduler.register_workload
def doubled_sums(n, m):
    x = te.placeholder((n, m), name="x")
    k = te.reduce_axis((0, m), "k")
    return [x, te.compute((n,), lambda i: te.sum(x[i, k] * 2.0, axis=k), name="total")]

if __name__ == "__main__":
    raise RuntimeError("tunes")
"""


def test_a_script_registers_the_functions_that_keys_name(tmp_path):
    script, log = tmp_path / "workloads.py", tmp_path / "log.json"
    script.write_text(SCRIPT)
    steps = [["SP", 1, 1, 16, [4], 1], ["AN", 1, 0, 3]]
    keys = ['["doubled_sums", 8, 16]', '["doubled_sums", 8]', '["no_such", 8]']
    lines = [record(steps, key, "llvm -keys=cpu").to_line() for key in keys]
    log.write_text("".join(f"{line}\n" for line in lines))
    program = (
        "import json, sys, pathlib; from compiler.cli import replay_ansor; "
        "log, script = sys.argv[1:]; scripts = [pathlib.Path(script)]; "
        "found = replay_ansor.check_ansor_records([log], 'llvm', workloads=scripts); "
        "print(json.dumps([[each.right, each.reason] for each in found.outcomes]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(log), str(script)], capture_output=True, text=True
    )  # a process of its own, since old scripts change the names that tvm has
    right, fails, unknown = json.loads(done.stdout)
    assert right == [True, ""]
    assert "the registered function 'doubled_sums' fails: TypeError" in fails[1]
    assert "no script registers the function 'no_such'" in unknown[1]


def test_steps_are_counted_by_kind_and_by_what_became_of_them():
    steps = {"SP": 2, "AN": 1}
    fates = [
        Outcome("log:1", "", "cuda", steps, True, True, True),
        Outcome("log:2", "", "cuda", steps, True, True, False, "ptxas error"),
        Outcome("log:3", "", "cuda", {"SP": 3}, True, False, False, "step 0 (SP): refused"),
        Outcome("log:4", "", "cuda", {"SP": 5}, False, False, False, "not known"),
    ]
    assert step_counts(fates) == {"SP": (4, 12, 2, 5, 3, 2), "AN": (2, 2, 1, 0, 0, 1)}
