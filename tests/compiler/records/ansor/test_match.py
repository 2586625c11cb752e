"""From operators to Ansor's keys and records, and builds under a genuine log."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax

from compiler import PassContext, auto_scheduler, relay
from compiler.lowering.selection.ansor_records import ReplayedKernels
from compiler.lowering.selection.extract import plain_kernels
from compiler.lowering.selection.schedule_source import ScheduleSource
from compiler.records.ansor import match
from compiler.runtime import graph_executor
from compiler.target import parse
from tests.compiler.records.ansor.conftest import ORACLE

KEYS = json.loads((ORACLE / "workload_keys.json").read_text())
LOG = ORACLE / "best_records.json"
RNG = np.random.default_rng(0)


def values(*shape):
    return RNG.uniform(-1, 1, shape).astype("float32")


def module(inputs, emit):
    """A Relax module of one function; `emit(builder, *variables)` gives its result."""
    variables = [
        relax.Var(f"x{i}", relax.TensorType(x.shape, "float32")) for i, x in enumerate(inputs)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", variables):
        with builder.dataflow():
            out = builder.emit_output(emit(builder.emit, *variables))
        builder.emit_func_output(out)
    return builder.get()


def nhwc(x, weight, padding):
    return relax.op.nn.conv2d(
        x, relax.const(weight), padding=padding, data_layout="NHWC", kernel_layout="HWIO"
    )


def convolved(x, weight):
    """float64 reference of a 3x3 convolution with padding 1."""
    padded = np.pad(x.astype("float64"), ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    return np.einsum("nhwcij,ijco->nhwo", windows, weight)


def convolution():
    x, weight, bias = values(1, 4, 4, 64), values(3, 3, 64, 64), values(1, 1, 1, 64)
    op = relax.op

    def emit(e, v):
        return e(op.nn.relu(e(op.add(e(nhwc(v, weight, 1)), relax.const(bias)))))

    return [x], emit, np.maximum(convolved(x, weight) + bias, 0), "d3738065"


def winograd():
    x, weight, residual = values(1, 2, 2, 128), values(3, 3, 128, 128), values(1, 2, 2, 128)

    def emit(e, v, r):
        return e(relax.op.add(e(nhwc(v, weight, 1)), r))

    return [x, residual], emit, convolved(x, weight) + residual, "fbb48aa7"


def dense_gelu():
    x, weight, bias = values(64, 128), values(128, 512), values(512)
    op = relax.op

    def emit(e, v):
        product = e(op.matmul(v, relax.const(weight)))
        return e(op.nn.gelu(e(op.add(product, relax.const(bias)))))

    from math import erf

    z = x.astype("float64") @ weight + bias
    return [x], emit, z * 0.5 * (1 + np.vectorize(erf)(z / np.sqrt(2))), "d673b7b6"


def softmax():
    x = values(4, 64, 64)
    exp = np.exp(x.astype("float64"))
    return [x], lambda e, v: e(relax.op.nn.softmax(v, -1)), exp / exp.sum(-1, keepdims=True), "4e44"


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


def run(mod, inputs, log=LOG):
    with auto_scheduler.ApplyHistoryBest(log), tvm.transform.PassContext(opt_level=3):
        library = relay.build(mod, target="llvm")
    runner = graph_executor.GraphModule(library["default"](tvm.cpu()))
    runner.run(**{f"x{i}": x for i, x in enumerate(inputs)})
    return library.report, runner.get_output(0).numpy()


@pytest.mark.parametrize("case", [convolution, winograd, dense_gelu, softmax])
def test_a_build_takes_the_log_and_computes_the_right_numbers(case):
    inputs, emit, expected, key = case()
    report, result = run(module(inputs, emit), inputs)
    lines = LOG.read_text().splitlines()
    sources = [k.source for k in report.kernels if k.source.startswith("auto_scheduler:")]
    assert len(sources) == 1
    number = int(sources[0].rpartition(":")[2])
    assert key in lines[number - 1]
    np.testing.assert_allclose(result, expected, atol=2e-4 * np.abs(expected).max())


def test_a_strict_build_takes_no_record_of_winograd_and_says_so():
    inputs, emit, *_ = winograd()
    report, _ = run(module(inputs, emit), inputs)
    assert [k.algorithm for k in report.kernels if k.source.startswith("auto")] == [
        "winograd F(4x4,3x3)"
    ]
    strict = {"config": {"baton.precision": "strict"}}
    with auto_scheduler.ApplyHistoryBest(LOG), PassContext(opt_level=3, **strict):
        report = relay.build(module(inputs, emit), target="llvm").report
    assert {kernel.algorithm for kernel in report.kernels} == {"direct"}
    assert any("Winograd is disabled" in note for note in report.notes)


def test_a_record_of_other_numbers_is_not_used(tmp_path, caplog):
    """A key claims the compute of another: its steps fit, so only the numbers tell."""
    inputs, emit, expected, _ = softmax()
    log = tmp_path / "claims.json"
    row = json.loads(next(text for text in LOG.read_text().splitlines() if "4e44f7de" in text))
    row["i"][1][1] = [["SP", 0, 0, 4, [2], 1]]
    log.write_text(json.dumps(row) + "\n")
    report, result = run(module(inputs, emit), inputs, log)
    assert all(kernel.source.startswith("topi:") for kernel in report.kernels)
    assert "is a placeholder" in caplog.text
    np.testing.assert_allclose(result, expected, atol=1e-5)


def test_a_record_for_the_same_shapes_is_used_where_no_hash_agrees(tmp_path):
    inputs, emit, expected, _ = convolution()
    row = json.loads(next(text for text in LOG.read_text().splitlines() if "d3738065" in text))
    row["i"][0][0] = row["i"][0][0].replace("d37380659057397544e056461ea3bad3", "0" * 32)
    log = tmp_path / "unknown_hash.json"
    log.write_text(json.dumps(row) + "\n")
    report, result = run(module(inputs, emit), inputs, log)
    assert "auto_scheduler:unknown_hash.json:1" in [kernel.source for kernel in report.kernels]
    np.testing.assert_allclose(result, expected, atol=2e-4 * np.abs(expected).max())


def test_a_kernel_that_turns_out_wrong_is_left_out_of_the_library(tmp_path, caplog, monkeypatch):
    """What is compiled adds 1 to each sum: the build notices, and starts again without it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    inputs, emit, expected, _ = convolution()
    right = match.vectorize_unrolled
    monkeypatch.setattr(match, "vectorize_unrolled", lambda func: off_by_one(right(func)))
    report, result = run(module(inputs, emit), inputs)
    assert all(kernel.source.startswith("topi:") for kernel in report.kernels)
    assert "wrong numbers" in caplog.text
    np.testing.assert_allclose(result, expected, atol=2e-4 * np.abs(expected).max())


@pytest.mark.parametrize("target", ["llvm -mcpu=znver4", "llvm -mtriple=aarch64-linux-gnu"])
def test_records_for_a_cpu_that_is_not_here_are_checked_on_this_one(target):
    inputs, emit, *_ = convolution()
    with auto_scheduler.ApplyHistoryBest(LOG), tvm.transform.PassContext(opt_level=3):
        library = relay.build(module(inputs, emit), target=target)
    assert any(k.source.startswith("auto_scheduler:") for k in library.report.kernels)


def test_a_record_that_no_gpu_runs_is_not_used(tmp_path, caplog, checker):
    """4096 threads in a block, which nvcc compiles."""
    x, weight = values(64, 16), values(16, 64)
    lines = ("p0 = PLACEHOLDER ", "p1 = PLACEHOLDER ",
             "T_matmul_NN(i0, i1) += (p0[i0, k]*p1[k, i1])")  # fmt: skip
    digest = hashlib.md5("".join(f"{line}\n" for line in lines).encode()).hexdigest()
    key = json.dumps([digest, [64, 16], [16, 64], [64, 64]])
    for threads, record in ((4096, None), (64, "auto_scheduler:threads.json:1")):
        steps = [["FU", 2, [0, 1]], ["SP", 2, 0, 4096, [threads], 1], ["AN", 2, 0, 5],
                 ["AN", 2, 1, 6]]  # fmt: skip
        task = [key, "cuda -keys=cuda,gpu", [-1, 16, 64, 49152, 2147483647, 1024, 8, 32], "", 0, []]
        row = {"i": [task, [[], steps]], "r": [[1e-3], 0, 0.1, 1], "v": "v0.6"}
        log = tmp_path / "threads.json"
        log.write_text(json.dumps(row) + "\n")
        mod = module([x], lambda e, v: e(relax.op.matmul(v, relax.const(weight))))
        target = parse("cuda -arch=sm_80")
        (kernel,) = plain_kernels(mod, "main", target)
        with auto_scheduler.ApplyHistoryBest(log):
            replayed = ReplayedKernels(ScheduleSource.from_contexts(), checker)
            match = replayed.find(kernel, "the kernel", target)
        assert (match and match.record.source) == record
    assert "no GPU runs it: its 4096 threads per block exceed 1024" in caplog.text


def test_a_record_over_blocks_of_channels_is_named(tmp_path, caplog):
    x, weight, bias = values(1, 8, 6, 6), values(16, 8, 3, 3), values(16, 1, 1)
    op = relax.op

    def emit(e, v):
        product = e(op.nn.conv2d(v, relax.const(weight), padding=1))
        return e(op.nn.relu(e(op.add(product, relax.const(bias)))))

    shapes = [[1, 2, 6, 6, 4], [4, 2, 3, 3, 4, 4], [1, 4, 1, 1, 4], [1, 4, 6, 6, 4]]
    task = [json.dumps(["0" * 32, *shapes]), "llvm -keys=cpu", [1, 64, 64, 0, 0, 0, 0, 0], "", 2]
    row = {"i": [task, [[], []]], "r": [[1e-3], 0, 0.1, 1], "v": "v0.5"}
    log = tmp_path / "blocked.json"
    log.write_text(json.dumps(row) + "\n")
    report, _ = run(module([x], emit), [x], log)
    assert all(kernel.source.startswith("topi:") for kernel in report.kernels)
    assert "nn.conv2d add nn.relu: its record is for NCHW4c" in caplog.text
    assert any("its record is for NCHW4c" in note for note in report.notes)


def off_by_one(func):
    """The function with sums that begin at 1."""

    def begin_at_one(store):
        begins = isinstance(store.value, tvm.tirx.FloatImm) and float(store.value.value) == 0.0
        one = tvm.tirx.const(1.0, "float32")
        return tvm.tirx.BufferStore(store.buffer, one, store.indices) if begins else store

    body = tvm_ffi.structural_map(func.body, (tvm.tirx.BufferStore, begin_at_one))
    return func.with_body(body)
