"""CUDA kernels of rows: norms that are read in two types, norms and softmax after matmuls."""

import numpy as np
import pytest
import tvm
from tvm import relax, tirx
from tvm.relax import op
from tvm.target import Target

import compiler
from compiler.ir.constants import constant
from compiler.lowering import pipeline, steps
from compiler.lowering.graph_passes.fuse import fuse
from compiler.lowering.graph_passes.merge_row_kernels import merge_row_kernels
from schedules.cuda.verify import launches

TARGET = Target({"kind": "cuda", "arch": "sm_90"}, host="llvm")
ROWS, COLUMNS = 32, 96
LONG, SHORT = 2048, 64
"""A k that is divided among blocks, and one that is not."""
MERGE = "merge row kernels"


def module(compute, k=LONG, dtype="float32", rows=ROWS):
    """The function of x (rows, k) and r (rows, COLUMNS) whose results `compute` emits."""
    builder = relax.BlockBuilder()
    x, r = (relax.Var(n, relax.TensorType((rows, s), dtype)) for n, s in (("x", k), ("r", COLUMNS)))
    with builder.function("main", [x, r]):
        with builder.dataflow():
            results = [builder.emit_output(each) for each in compute(builder.emit, x, r)]
        result = results[0] if len(results) == 1 else relax.Tuple(results)
        builder.emit_func_output(result)
    return builder.get()


def weight(*shape, dtype="float32"):
    return constant(np.random.default_rng(sum(shape)).uniform(-1, 1, shape).astype(dtype))


def matmul(emit, x):
    return emit(op.matmul(x, weight(int(x.ty.shape[-1]), COLUMNS, dtype=str(x.ty.dtype))))


def norm(emit, x):
    return emit(op.nn.layer_norm(x, weight(COLUMNS), emit(weight(COLUMNS)), axes=[-1]))


def norm_of_sum(emit, x, r):
    """norm(x w + r): the norm alone reads the sum."""
    yield norm(emit, emit(op.add(matmul(emit, x), r)))


def norm_before_sum(emit, x, r):
    """y = x w + r, and y + norm(y) v: the norm and a later sum read y."""
    y = emit(op.add(r, matmul(emit, x)))
    yield emit(op.add(matmul(emit, norm(emit, y)), y))


def norm_in_two_types(emit, x, r):
    """A norm that is read as float32 and as float16."""
    y = norm(emit, r)
    yield emit(op.negative(y))
    yield emit(op.negative(emit(op.astype(y, "float16"))))


def map_of_sum(emit, x, r):
    """y = x w + r, tanh(y) and y v: a matmul and an element-wise operator read y."""
    y = emit(op.add(matmul(emit, x), r))
    yield emit(op.tanh(y))
    yield matmul(emit, y)


def softmax(emit, x, r):
    yield emit(op.nn.softmax(emit(op.multiply(matmul(emit, x), r))))


def scheduled(mod, target=TARGET, **context):
    with compiler.PassContext(opt_level=3, **context):
        return pipeline.scheduled(mod, target)


def launched(mod, **context):
    """Launches of each kernel."""
    state = scheduled(mod, **context)
    return [launches(state.mod[kernel.name]) * kernel.calls for kernel in state.report.kernels]


def results(mod):
    rng = np.random.default_rng(0)
    inputs = [
        rng.uniform(-1, 1, [int(extent) for extent in param.ty.shape]).astype(str(param.ty.dtype))
        for param in mod["main"].params
    ]
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    found = machine["main"](*map(tvm.runtime.tensor, inputs))
    return [found.numpy()] if hasattr(found, "numpy") else [each.numpy() for each in found]


@pytest.mark.parametrize(
    "compute", [norm_of_sum, norm_before_sum, norm_in_two_types, map_of_sum, softmax]
)
def test_a_merged_kernel_computes_what_the_two_did(compute):
    plain, _, _ = fuse(module(compute), TARGET)
    merged, replaced = merge_row_kernels(plain, "main", TARGET, tf32=False)
    assert len(replaced) == 1
    for found, expected in zip(results(merged), results(plain), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("compute", "before", "after"),
    [
        (norm_of_sum, [2, 1], [2]),
        (norm_before_sum, [2, 1, 1], [2, 1]),
        (norm_in_two_types, [1, 1, 1], [1, 1]),
        (map_of_sum, [2, 1, 1], [2, 1]),
        (softmax, [2, 1], [2]),
    ],
)
def test_one_kernel_has_the_launches_of_rows_and_adds_the_parts_of_k(compute, before, after):
    assert launched(module(compute), disabled_pass=[MERGE]) == before
    assert launched(module(compute)) == after


@pytest.mark.parametrize("config", [{}, {"baton.precision": "tf32"}])
def test_the_report_has_the_operators_of_both_kernels(config):
    state = scheduled(module(norm_of_sum), config=config)
    (kernel,) = state.report.kernels
    names = [name.removeprefix("nn.") for name in kernel.operators]
    assert names == ["dense", "add", "layer_norm"]
    expected = "cuda.tensor_cores" if config else "cuda.float32_products"
    assert kernel.implementation == expected


def test_a_matmul_whose_k_is_not_divided_stays_apart():
    assert launched(module(norm_of_sum, k=SHORT)) == [1, 1]


def test_a_cast_is_merged_with_the_norm_that_alone_reads_it():
    def cast_before_norm(emit, x, r):
        y = matmul(emit, x)
        yield norm(emit, emit(op.astype(y, "float32")))
        yield matmul(emit, y)

    mod = module(cast_before_norm, dtype="float16")
    assert launched(mod, disabled_pass=[MERGE]) == [2, 1, 1, 1]
    assert launched(mod) == [2, 1]


def test_arguments_that_are_computed_after_the_matmul_keep_the_kernels_apart():
    def late(emit, x, r):
        y = matmul(emit, x)
        scale = emit(op.max(r, axis=0))
        yield emit(op.nn.layer_norm(y, scale, weight(COLUMNS), axes=[-1]))

    assert launched(module(late)) == [2, 1, 1]


def test_dynamic_rows_stay_apart():
    rows = tirx.Var("rows", "int64")
    plain, _, _ = fuse(module(norm_of_sum, rows=rows), TARGET)
    merged, replaced = merge_row_kernels(plain, "main", TARGET, tf32=False)
    assert merged.same_as(plain)
    assert replaced == {}


def test_builds_for_cpus_merge_nothing(monkeypatch):
    monkeypatch.setattr(steps, "merge_row_kernels", None)
    with pytest.raises(compiler.errors.BuildError, match=MERGE):
        scheduled(module(norm_of_sum))
    assert scheduled(module(norm_of_sum), Target("llvm")).report.kernels
