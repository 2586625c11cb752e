"""`Stage.transform_layout`: tensors that lie in another order or number of dimensions."""

import numpy as np
import pytest
import tvm
from tvm import te

import compiler.legacy.te as cte
from compiler.errors import ScheduleError


def _doubled(shape):
    a = te.placeholder(shape, name="a")
    b = te.compute(shape, lambda *i: a(*i) + 1.0, name="b")
    c = te.compute(shape, lambda *i: b(*i) * 2.0, name="c")
    return a, b, c, cte.create_schedule(c.op)


def test_inputs_temporaries_and_outputs_lie_as_they_are_told():
    a, b, c, s = _doubled((4, 6))
    assert s[a].transform_layout(lambda i, j: [j, i]) == []
    s[b].transform_layout(lambda i, j: [i * 6 + j])
    rows, outer, inner = s[c].transform_layout(
        lambda *i, n: [*i, n // 2, cte.AXIS_SEPARATOR, n % 2]
    )
    assert [int(loop.dom.extent) for loop in s[c].leaf_iter_vars] == [4, 3, 2]
    s[c].reorder(outer, rows, inner)
    s[c].vectorize(inner)
    values = np.arange(24, dtype="float32").reshape(4, 6)
    function = cte.build(s, [a, c], "llvm")
    given = tvm.runtime.tensor(np.ascontiguousarray(values.T))
    found = tvm.runtime.empty((4, 3, 2), "float32")
    function(given, found)
    np.testing.assert_array_equal(found.numpy().reshape(4, 6), (values + 1) * 2)


def test_layouts_follow_each_other_and_keep_reductions():
    a = te.placeholder((8, 5), name="a")
    k = te.reduce_axis((0, 5), name="k")
    b = te.compute((8,), lambda i: te.sum(a[i, k], axis=k), name="b")
    s = cte.create_schedule(b.op)
    s[b].transform_layout(lambda i: [i // 4, i % 4])
    loops = s[b].transform_layout(lambda i, j: [j, i])
    assert [str(loop.var.name) for loop in s[b].leaf_iter_vars] == ["j", "i", "k"]
    s[b].fuse(*loops)
    values = np.random.default_rng(0).random((8, 5), "float32")
    found = tvm.runtime.empty((4, 2), "float32")
    cte.build(s, [a, b], "llvm")(tvm.runtime.tensor(values), found)
    np.testing.assert_allclose(found.numpy().T.reshape(-1), values.sum(1), rtol=1e-6)


def test_a_transformed_tensor_may_be_computed_inside_of_its_reader():
    a, b, c, s = _doubled((4, 6))
    s[b].transform_layout(lambda i, j: [j, i])
    s[b].compute_at(s[c], c.op.axis[0])
    values = np.arange(24, dtype="float32").reshape(4, 6)
    found = tvm.runtime.empty((4, 6), "float32")
    cte.build(s, [a, c], "llvm")(tvm.runtime.tensor(values), found)
    np.testing.assert_array_equal(found.numpy(), (values + 1) * 2)


def test_what_is_not_one_to_one_or_comes_too_late_is_refused():
    _, b, c, s = _doubled((4, 6))
    with pytest.raises(ScheduleError, match="transform_layout of stage c: the mapping"):
        s[c].transform_layout(lambda i, j: [i, j // 4, j % 4])
    s[c].split(c.op.axis[1], factor=2)
    with pytest.raises(ScheduleError, match="i1 was split or fused already"):
        s[c].transform_layout(lambda i, j: [j, i])
    s[b].transform_layout(lambda i, j: [j, i])
    with pytest.raises(ScheduleError, match="cache_write of stage b: do it before"):
        s.cache_write(b, "local")
