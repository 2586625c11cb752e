"""Scatters and slices that TVM's legalizations get wrong."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from compiler import relay
from compiler.runtime import graph_executor


def executor(function, *arrays):
    """An executor of a function of tensors like these, named x0, x1, ..."""
    types = [relax.TensorType(array.shape, str(array.dtype)) for array in arrays]
    variables = [relax.Var(f"x{i}", ty) for i, ty in enumerate(types)]
    builder = relax.BlockBuilder()
    with builder.function("main", variables):
        with builder.dataflow():
            result = builder.emit_output(function(*variables))
        builder.emit_func_output(result)
    return graph_executor.GraphModule(relay.build(builder.get(), "llvm")["default"](tvm.cpu()))


@pytest.mark.parametrize("reduction", ["update", "add", "max"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_elements_are_scattered_into_a_part_of_the_data(axis, reduction):
    rng = np.random.default_rng(0)
    data = rng.normal(size=(3, 4, 5)).astype("float32")
    shape = (2, 3, 4)
    extent = data.shape[axis]
    indices = np.argsort(rng.random((*shape[:axis], extent, *shape[axis:][1:])), axis)
    indices = np.take(indices, range(shape[axis]), axis) if axis >= 0 else indices[..., :4]
    indices = np.where(indices % 2 == 0, indices, indices - extent)
    updates = rng.normal(size=shape).astype("float32")

    expected = data.copy()
    join = {"update": lambda a, b: b, "add": lambda a, b: a + b, "max": max}[reduction]
    for at in np.ndindex(shape):
        place = list(at)
        place[axis] = indices[at]
        expected[tuple(place)] = join(expected[tuple(place)], updates[at])

    module = executor(
        lambda x, i, u: relax.op.scatter_elements(x, i, u, axis, reduction), data, indices, updates
    )
    module.run(x0=data, x1=indices, x2=updates)
    np.testing.assert_array_equal(module.get_output(0).numpy(), expected)


def test_slices_whose_end_lies_in_front_of_the_beginning_are_empty():
    data = np.arange(12, dtype="float32").reshape(6, 2)
    bounds = [np.zeros(2, "int64"), np.zeros(2, "int64"), np.ones(2, "int64")]
    module = executor(relax.op.dynamic_strided_slice, data, *bounds)
    for begin, end, stride in [
        *((1, 0, 1), (1, 4, -1), (2, 2, 1), (7, 9, 1), (-9, -8, 1)),
        *((0, 3, 1), (-3, -1, 1), (0, 100, 2), (5, 1, -1), (4, -9, -2), (100, -100, -1)),
    ]:
        given = [np.array([value, full]) for value, full in ((begin, 0), (end, 2), (stride, 1))]
        module.run(x0=data, x1=given[0], x2=given[1], x3=given[2])
        np.testing.assert_array_equal(module.get_output(0).numpy(), data[begin:end:stride])
