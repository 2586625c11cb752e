"""`tvm.contrib.sparse` and `topi.sparse`: products with matrices in compressed row form."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te

from compiler import legacy
from compiler.errors import InputError, ScheduleError


@pytest.fixture(autouse=True)
def old_names():
    with legacy.installed():
        yield


def sparse_matrix(rows, columns, dtype="float32"):
    values = np.random.default_rng(0).integers(-3, 4, (rows, columns)).astype(dtype)
    values[1] = 0  # a row without entries
    return np.where(values > 0, values, 0).astype(dtype)


def run(out, arguments, shape, *values, dtype="float32"):
    found = tvm.nd.array(np.zeros(shape, dtype))
    tvm.build(te.create_schedule(out.op), [*arguments, out], "llvm")(*values, found)
    return found.numpy()


def test_a_sparse_array_is_made_of_a_matrix_or_its_parts():
    from tvm.contrib import sparse

    matrix = sparse_matrix(4, 5)
    made = sparse.array(matrix, tvm.cpu())
    np.testing.assert_array_equal(made.numpy(), matrix)
    again = sparse.array((made.data, made.indices, made.indptr), shape=matrix.shape)
    np.testing.assert_array_equal(again.asnumpy(), matrix)
    assert made.stype == "csr" and made.shape == (4, 5)
    with pytest.raises(InputError, match="a shape"):
        sparse.array((made.data, made.indices, made.indptr))
    with pytest.raises(InputError, match="csr"):
        sparse.placeholder((4, 5), 3, stype="coo")


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize("name", ["csrmv", "csrmm"])
def test_products_of_a_matrix_whose_entries_running_tells(name, dtype, biased):
    from tvm import topi
    from tvm.contrib import sparse

    columns = 1 if name == "csrmv" else 3
    rows, entries = te.var("rows"), te.var("entries")
    a = sparse.placeholder((rows, 5), entries, dtype, "A")
    b, c = te.placeholder((5, columns), dtype, "B"), te.placeholder((rows,), dtype, "C")
    out = getattr(topi.sparse, name)(a, b, c if biased else None)
    matrix, other = sparse_matrix(4, 5, dtype), np.arange(5 * columns, dtype=dtype)
    other, bias = other.reshape(5, columns), np.arange(4, dtype=dtype)
    made = sparse.array(matrix)
    values = [made.data, made.indices, made.indptr, tvm.nd.array(other), tvm.nd.array(bias)]
    found = run(out, [a.data, a.indices, a.indptr, b, c], (4, columns), *values, dtype=dtype)
    np.testing.assert_array_equal(found, matrix @ other + biased * bias[:, None])


@pytest.mark.parametrize("of_data", [False, True])
def test_dense_of_sparse_data_or_sparse_weights(of_data):
    from tvm import topi
    from tvm.contrib import sparse

    data, weights, bias = sparse_matrix(3, 5), sparse_matrix(4, 5), np.arange(4, dtype="float32")
    sides = [data, weights]
    arguments, values, operands = [], [], []
    for side, is_sparse in zip(sides, (of_data, not of_data)):
        if is_sparse:
            made = sparse.array(side)
            operand = sparse.placeholder(side.shape, made.data.shape[0], "float32", "S")
            arguments += [operand.data, operand.indices, operand.indptr]
            values += [made.data, made.indices, made.indptr]
        else:
            operand = te.placeholder(side.shape, name="D")
            arguments.append(operand)
            values.append(tvm.nd.array(side))
        operands.append(operand)
    added = te.placeholder((4,), name="bias")
    out = topi.sparse.dense(*operands, added)
    found = run(out, [*arguments, added], (3, 4), *values, tvm.nd.array(bias))
    np.testing.assert_array_equal(found, data @ weights.T + bias)
    with pytest.raises(ScheduleError, match="one of data and weight"):
        topi.sparse.dense(added, added)


def test_a_buffer_may_be_bound_to_an_input_that_nothing_reads():
    a, b = te.placeholder((4,), name="A"), te.placeholder((3,), name="B")
    out = te.compute((4,), lambda i: a[i] + 1.0, name="out")
    binds = {b: tvm.tir.decl_buffer((3,), "float32", name="given")}
    lowered = tvm.lower(te.create_schedule(out.op), [a, b, out], binds=binds)
    assert "given" in lowered.script()
    assert "given" not in tvm.lower(te.create_schedule(out.op), [a, out], binds=binds).script()
