"""Tests of constant folding."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax

from compiler.ir import fold_constants
from compiler.ir.constants import array_of
from compiler.ir.fold_constants import FoldConstant
from compiler.ir.op_facts import all_facts
from compiler.ir.rewrite import expressions_in, operator_name

A = np.array([[1.5, -2.0, 3.25], [0.5, 4.0, -0.125]], "float32")
B = np.array([[2.0, 0.5, -1.0], [3.0, 0.25, 8.0]], "float32")
INTS = np.array([[3, -7, 5], [2, 9, -4]], "int32")
OPS = relax.op


def const(array):
    return relax.const(array, str(array.dtype))


def folded(mod):
    """The constant that `main` returns after folding; None if it still computes."""
    return array_of(FoldConstant()(mod)["main"].body.body)


CASES = {
    "add": (lambda: OPS.add(const(A), const(B)), A + B),
    "subtract": (lambda: OPS.subtract(const(A), const(B[0])), A - B[0]),
    "multiply": (lambda: OPS.multiply(const(A), relax.const(3.0)), A * np.float32(3)),
    "divide": (lambda: OPS.divide(const(A), const(B)), A / B),
    "divide truncates": (
        lambda: OPS.divide(const(INTS), relax.const(2, "int32")),
        np.trunc(INTS / 2).astype("int32"),
    ),
    "sqrt": (lambda: OPS.sqrt(const(abs(A))), np.sqrt(abs(A))),
    "rsqrt": (lambda: OPS.rsqrt(const(abs(A))), (1 / np.sqrt(abs(A).astype("f8"))).astype("f4")),
    "exp": (lambda: OPS.exp(const(A)), np.exp(A.astype("f8")).astype("f4")),
    "negative": (lambda: OPS.negative(const(A)), -A),
    "power": (lambda: OPS.power(const(abs(A)), const(B)), abs(A) ** B),
    "maximum": (lambda: OPS.maximum(const(A), const(B)), np.maximum(A, B)),
    "clip": (lambda: OPS.clip(const(A), -1, 2), np.clip(A, -1, 2)),
    "astype": (lambda: OPS.astype(const(A), "int32"), A.astype("int32")),
    "reshape": (lambda: OPS.reshape(const(A), (3, 2)), A.reshape(3, 2)),
    "expand_dims": (lambda: OPS.expand_dims(const(A), [0, 3]), A.reshape(1, 2, 3, 1)),
    "squeeze": (lambda: OPS.squeeze(const(A[:1]), [0]), A[0]),
    "permute_dims": (lambda: OPS.permute_dims(const(A)), A.T),
    "broadcast_to": (lambda: OPS.broadcast_to(const(A[0]), (2, 3)), np.stack([A[0], A[0]])),
    "concat": (lambda: OPS.concat([const(A), const(B)], 1), np.concatenate([A, B], 1)),
    "stack": (lambda: OPS.stack([const(A), const(B)], 1), np.stack([A, B], 1)),
    "take": (lambda: OPS.take(const(A), const(np.array([2, 0])), 1), A[:, [2, 0]]),
    "strided_slice": (lambda: OPS.strided_slice(const(A), [1], [0], [3], [2]), A[:, ::2]),
    "where": (lambda: OPS.where(const(A > 0), const(A), const(B)), np.where(A > 0, A, B)),
    "less": (lambda: OPS.less(const(A), const(B)), A < B),
    "sum": (lambda: OPS.sum(const(A), [1]), A.sum(1)),
    "mean": (lambda: OPS.mean(const(A), [0], True), A.mean(0, keepdims=True)),
    "max": (lambda: OPS.max(const(A), [1], True), A.max(1, keepdims=True)),
    "matmul": (lambda: OPS.matmul(const(A), const(B.T.copy())), A @ B.T),
    "arange": (lambda: OPS.arange(1, 9, 3, "int64"), np.arange(1, 9, 3)),
    "full": (lambda: OPS.full((2, 2), relax.const(1.5)), np.full((2, 2), 1.5, "f4")),
    "zeros": (lambda: OPS.zeros((2, 2), "int8"), np.zeros((2, 2), "i1")),
    "pad": (
        lambda: OPS.nn.pad(const(A), [0, 1, 2, 0], "constant", 7.0),
        np.pad(A, [(0, 1), (2, 0)], constant_values=7.0),
    ),
    "tile": (lambda: OPS.tile(const(A), (2, 1)), np.tile(A, (2, 1))),
    "erf": (lambda: OPS.erf(const(A)), np.vectorize(math.erf)(A).astype("f4")),
    "atanh": (lambda: OPS.atanh(const(A / 5)), np.arctanh(A / 5)),
    "floor_mod": (lambda: OPS.floor_mod(const(INTS), relax.const(4, "int32")), INTS % 4),
    "mod": (lambda: OPS.mod(const(INTS), relax.const(4, "int32")), np.fmod(INTS, 4).astype("i4")),
    "floor_divide": (lambda: OPS.floor_divide(const(INTS), relax.const(4, "int32")), INTS // 4),
    "repeat": (lambda: OPS.repeat(const(A), 2, 1), np.repeat(A, 2, 1)),
    "flip": (lambda: OPS.flip(const(A), 1), A[:, ::-1]),
    "leakyrelu": (lambda: OPS.nn.leakyrelu(const(A), 0.5), np.where(A > 0, A, A / 2)),
    "isnan": (lambda: OPS.isnan(const(A)), np.isnan(A)),
    "right_shift": (lambda: OPS.right_shift(const(abs(INTS)), const(INTS * 0 + 1)), abs(INTS) >> 1),
    "bitwise_not": (lambda: OPS.bitwise_not(const(INTS)), ~INTS),
    "layout_transform": (
        lambda: OPS.layout_transform(
            const(np.arange(32.0, dtype="f4").reshape(8, 4)),
            lambda o, i: (o // 4, i // 2, i % 2, o % 4),
        ),
        np.arange(32.0, dtype="f4").reshape(2, 4, 2, 2).transpose(0, 2, 3, 1),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_an_operator_on_constants_becomes_the_constant_that_numpy_computes(name, build):
    expression, expected = CASES[name]
    result = folded(build(lambda builder: expression()))
    assert result is not None
    assert result.dtype == expected.dtype and result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_the_folder_agrees_with_compiled_code(build, run, rng):
    left, right = (rng.normal(size=(5, 7)).astype("float32") for _ in range(2))

    def body(builder, *inputs):
        x, y = inputs or (const(left), const(right))
        z = OPS.add(OPS.multiply(x, y), OPS.exp(OPS.negative(x)))
        return OPS.concat([OPS.mean(z, [1]), OPS.max(OPS.permute_dims(z), [0])], 0)

    tensor = ((5, 7), "float32")
    compiled = run(build(body, x=tensor, y=tensor), left, right)
    np.testing.assert_allclose(folded(build(body)), compiled, rtol=1e-5)


def test_shapes_of_static_tensors_become_constants(build, operators):
    def body(builder, x):
        shape = builder.emit(OPS.shape_to_tensor(builder.emit(OPS.shape_of(x))))
        channels = OPS.take(shape, relax.const(1, "int64"), 0)
        return OPS.astype(channels, "float32")

    mod = FoldConstant()(build(body, x=((2, 3, 4), "float32")))
    assert not operators(mod)


def test_split_of_a_constant_becomes_constants(build, operators):
    def body(builder, x):
        parts = builder.emit(OPS.split(const(A), 3, 1))
        return OPS.add(x, builder.emit(relax.TupleGetItem(parts, 1)))

    mod = FoldConstant()(build(body, x=((2, 1), "float32")))
    assert operators(mod) == {"add": 1}


def test_what_depends_on_an_input_is_left_alone(build):
    mod = build(lambda builder, x: OPS.add(x, const(A)), x=((2, 3), "float32"))
    assert tvm_ffi.structural_equal(FoldConstant()(mod), mod)


def test_a_chain_of_growing_results_stays_within_the_bound(build, monkeypatch):
    monkeypatch.setattr(fold_constants, "TOTAL_BYTES", 1 << 16)

    def grow(builder):
        value = const(A)
        for _ in range(10):
            value = builder.emit(OPS.concat([value] * 4, 0))
        return value

    mod = FoldConstant()(build(grow))
    largest = max(
        array_of(each).nbytes for each in expressions_in(mod["main"], tvm.ir.GenericConst)
    )
    assert A.nbytes < largest <= (1 << 16) + 4 * A.nbytes


def test_a_large_broadcast_is_not_materialized(build, operators):
    mod = build(lambda builder: OPS.broadcast_to(const(A[0]), (1024, 1024, 3)))
    assert operators(FoldConstant()(mod)) == {"broadcast_to": 1}


@pytest.mark.parametrize(
    "expression",
    [
        lambda: OPS.take(const(A), const(np.array([5])), 1),
        lambda: OPS.divide(const(INTS), relax.const(0, "int32")),
        lambda: OPS.astype(const(np.array([np.inf], "float32")), "int32"),
        lambda: OPS.strided_slice(const(A), [1], [2], [-4], [-1]),
    ],
    ids=["index out of range", "division by zero", "infinity to integer", "negative stride"],
)
def test_what_has_no_agreed_result_is_left_alone(expression, build):
    assert folded(build(lambda builder: expression())) is None


def test_folding_can_be_disabled_by_its_name(build, operators):
    mod = build(lambda builder: OPS.add(const(A), const(B)))
    with tvm.transform.PassContext(opt_level=3, disabled_pass=["FoldConstant"]):
        assert operators(tvm.transform.Sequential([FoldConstant()])(mod)) == {"add": 1}


def test_every_folder_is_an_operator_of_relax():
    for name in [each.name for each in all_facts() if each.evaluate is not None]:
        assert tvm.ir.Op.get(f"relax.{name}") is not None


def permuted_twice(axes, other_axes, uses=1):
    """x + a permuted constant that is permuted again, and so many more reads of the first."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    source = const(A)
    with builder.function("main", [x]):
        with builder.dataflow():
            once = builder.emit(OPS.permute_dims(source, axes))
            results = [builder.emit(OPS.add(x, builder.emit(OPS.permute_dims(once, other_axes))))]
            results += [builder.emit(OPS.negative(once)) for _ in range(uses - 1)]
            out = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(out)
    return source, builder.get()


@pytest.mark.parametrize("axes", [None, [1, 0]])
def test_permutations_that_undo_each_other_leave_the_constant_itself(axes):
    source, mod = permuted_twice(axes, [1, 0])
    (add,) = calls_of(FoldConstant()(mod), "add")
    assert add.args[1].value.same_as(source.value)


def test_a_permutation_that_others_read_as_well_is_computed():
    _, mod = permuted_twice([1, 0], [1, 0], uses=2)
    folded_mod = FoldConstant()(mod)
    assert not calls_of(folded_mod, "permute_dims")
    (add,) = calls_of(folded_mod, "add")
    np.testing.assert_array_equal(array_of(add.args[1]), A)


def test_permutations_that_do_not_undo_each_other_are_computed():
    builder = relax.BlockBuilder()
    cube = np.arange(24, dtype="float32").reshape(2, 3, 4)
    with builder.function("main", []):
        with builder.dataflow():
            once = builder.emit(OPS.permute_dims(const(cube), [1, 2, 0]))
            out = builder.emit_output(OPS.permute_dims(once, [1, 2, 0]))
        builder.emit_func_output(out)
    np.testing.assert_array_equal(folded(builder.get()), cube.transpose(2, 0, 1))


def calls_of(mod, name):
    return [
        each for each in expressions_in(mod["main"], tvm.ir.Call) if operator_name(each) == name
    ]
