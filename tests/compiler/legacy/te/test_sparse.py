"""Sparse products as tensor expressions: built, scheduled and tuned like others."""

from __future__ import annotations

import importlib.util
import logging

import numpy as np
import pytest
import tvm
from tvm import te

from compiler import auto_scheduler, legacy
from compiler.errors import RecordError, ScheduleError
from compiler.legacy.te.sparse import random_bsr_matrix, sparse_dense

needs_tune = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("cloudpickle", "psutil", "scipy", "xgboost"))),
    reason="the extra 'tune' is not installed",
)
scipy_sparse = pytest.importorskip("scipy.sparse")


def parts_of(matrix):
    return matrix.data, matrix.indices.astype("int32"), matrix.indptr.astype("int32")


def placeholders(arrays):
    return [te.placeholder(array.shape, str(array.dtype)) for array in arrays]


@pytest.mark.parametrize("sparse_lhs", [False, True])
@pytest.mark.parametrize("form", ["csr", "bsr"])
def test_old_scripts_multiply_by_a_sparse_matrix(form, sparse_lhs):
    matrix = random_bsr_matrix(12, 8, 4, 2, density=0.5)
    assert matrix.shape == (12, 8) and matrix.data.shape == (6, 4, 2)
    arrays = parts_of(matrix if form == "bsr" else matrix.tocsr())
    dense = np.random.rand(3, 8).astype("float32")
    with legacy.installed():
        from tvm import topi

        x, *sparse = tensors = placeholders([dense, *arrays])
        y = topi.nn.sparse_dense(x, *sparse, sparse_lhs)
        schedule = te.create_schedule(y.op)
        block = y.op.input_tensors[0]
        schedule[block].parallel(block.op.axis[0])
        built = tvm.build(schedule, [*tensors, y], "llvm")
        out = tvm.nd.empty([int(extent) for extent in y.shape])
        built(*map(tvm.nd.array, (dense, *arrays)), out)
    expected = dense @ matrix.toarray().T
    np.testing.assert_allclose(
        out.numpy(), expected.T if sparse_lhs else expected, rtol=1e-5, atol=1e-6
    )


def test_data_that_are_neither_form_are_refused():
    x, *sparse = placeholders([np.zeros((3, 8), "float32"), np.zeros((2, 2)), *2 * [np.zeros(2)]])
    with pytest.raises(ScheduleError, match="of 2 dimensions"):
        sparse_dense(x, *sparse)
    with pytest.raises(ScheduleError, match="do not divide"):
        random_bsr_matrix(10, 8, 4, 2, density=0.5)


def test_the_old_module_of_helpers_is_this_one():
    with legacy.installed():
        from tvm.topi.sparse.utils import random_bsr_matrix as found

        assert found is random_bsr_matrix


@auto_scheduler.register_workload("test_sparse.product", override=True)
def product(samples, columns, data, indices, indptr):
    x = te.placeholder((samples, columns), "float32")
    w = te.placeholder(data, "float32")
    places = [te.placeholder(shape, "int32") for shape in (indices, indptr)]
    return [x, w, *places, sparse_dense(x, w, *places)]


@needs_tune
def test_a_sparse_product_is_tuned_on_its_own_indices(tmp_path, caplog):
    arrays = parts_of(random_bsr_matrix(12, 8, 4, 2, density=0.5))
    names = ("data", "indices", "indptr")
    shapes = [array.shape for array in arrays]
    task = auto_scheduler.SearchTask(
        "test_sparse.product", (3, 8, *shapes), target="llvm -num-cores=1",
        task_inputs=dict(zip(names, arrays)),
    )  # fmt: skip
    with caplog.at_level(logging.WARNING, "baton.auto_scheduler"):
        rule = auto_scheduler.PreloadCustomSketchRule(None, None, "Sparse")
    assert "sketch rule Sparse is not applied" in caplog.text
    log = tmp_path / "sparse.json"
    options = auto_scheduler.TuningOptions(
        1, verbose=0, runner=auto_scheduler.LocalRunner(timeout=60, number=1),
        measure_callbacks=[auto_scheduler.RecordToFile(log)],
    )  # fmt: skip
    task.tune(options, auto_scheduler.SketchPolicy(task, init_search_callbacks=[rule]))
    schedule, _ = task.apply_best(log)
    dense = np.random.rand(3, 8).astype("float32")
    out = tvm.runtime.empty((3, 12), "float32")
    tvm.compile(schedule.mod, "llvm")(*map(tvm.runtime.tensor, (dense, *arrays)), out)
    expected = dense @ scipy_sparse.bsr_matrix(arrays, shape=(12, 8)).toarray().T
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_inputs_without_an_operand_are_refused():
    with pytest.raises(RecordError, match="no operand is left for 'indices'"):
        auto_scheduler.SearchTask(
            "test_sparse.product", (3, 8, (5,), (5,), (13,)), target="llvm",
            task_inputs={"indices": np.zeros(4, "int32")},
        )  # fmt: skip
