"""Arrays against numpy."""

from __future__ import annotations

import pickle

import numpy as onp
import pytest

from compiler.errors import ArrayError, ArrayIndexError, ArrayTypeError
from compiler.mxnet import cpu, gpu, np, npx
from compiler.mxnet.array.ndarray import waitall

RNG = onp.random.default_rng(3)
A = RNG.uniform(0.2, 0.9, (3, 4)).astype("float32")
B = RNG.uniform(0.2, 0.9, (3, 4)).astype("float32")
V = RNG.uniform(0.2, 0.9, 4).astype("float32")
CUBE = RNG.uniform(-1, 1, (2, 3, 4)).astype("float32")
INTS = onp.array([[3, 1, 2], [6, 5, 4]])

UNARY = (
    *("abs", "arccos", "arcsin", "arctan", "arctanh", "cbrt", "ceil", "cos", "cosh", "degrees"),
    *("exp", "expm1", "fix", "floor", "log", "log10", "log1p", "log2", "negative", "radians"),
    *("reciprocal", "rint", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc"),
    *("isnan", "isinf", "isfinite", "logical_not"),
)
BINARY = (
    *("add", "subtract", "multiply", "divide", "power", "maximum", "minimum", "mod", "hypot"),
    *("floor_divide", "arctan2", "equal", "not_equal", "less", "less_equal", "greater"),
    *("greater_equal", "logical_and", "logical_or", "logical_xor"),
)
FUNCTIONS = {
    "sum over two axes": lambda m, x: m.sum(x(CUBE), axis=(0, 2)),
    "sum kept": lambda m, x: m.sum(x(CUBE), axis=1, keepdims=True),
    "prod": lambda m, x: m.prod(x(A), axis=0),
    "mean": lambda m, x: m.mean(x(CUBE)),
    "mean of integers": lambda m, x: m.mean(x(INTS), axis=1),
    "max": lambda m, x: m.max(x(CUBE), axis=-1),
    "min": lambda m, x: m.min(x(CUBE), axis=0),
    "var": lambda m, x: m.var(x(CUBE), axis=1),
    "std with ddof": lambda m, x: m.std(x(CUBE), axis=2, ddof=1),
    "any": lambda m, x: m.any(x(CUBE) > 0.9, axis=1),
    "all": lambda m, x: m.all(x(CUBE) > -0.9, axis=(0, 1)),
    "argmax": lambda m, x: m.argmax(x(CUBE), axis=1),
    "argmin of all": lambda m, x: m.argmin(x(A)),
    "cumsum": lambda m, x: m.cumsum(x(CUBE), axis=1),
    "reshape": lambda m, x: m.reshape(x(CUBE), (4, -1)),
    "transpose": lambda m, x: m.transpose(x(CUBE), (2, 0, 1)),
    "transposed": lambda m, x: x(A).T,
    "swapaxes": lambda m, x: m.swapaxes(x(CUBE), 0, 2),
    "moveaxis": lambda m, x: m.moveaxis(x(CUBE), 0, -1),
    "expand_dims": lambda m, x: m.expand_dims(x(A), 1),
    "squeeze": lambda m, x: m.squeeze(m.expand_dims(x(A), 1), 1),
    "broadcast_to": lambda m, x: m.broadcast_to(x(V), (3, 4)),
    "concatenate": lambda m, x: m.concatenate([x(A), x(B)], axis=1),
    "concatenate flat": lambda m, x: m.concatenate([x(A), x(V)], axis=None),
    "stack": lambda m, x: m.stack([x(A), x(B)], axis=1),
    "vstack": lambda m, x: m.vstack([x(A), x(V)]),
    "hstack": lambda m, x: m.hstack([x(A), x(B)]),
    "dstack": lambda m, x: m.dstack([x(A), x(B)]),
    "split": lambda m, x: m.split(x(A), 2, axis=1)[1],
    "split at indices": lambda m, x: m.split(x(A), [1, 3], axis=1)[1],
    "tile": lambda m, x: m.tile(x(A), (2, 1)),
    "repeat": lambda m, x: m.repeat(x(A), 2, axis=0),
    "flip": lambda m, x: m.flip(x(A), 0),
    "roll": lambda m, x: m.roll(x(A), 1, axis=1),
    "pad": lambda m, x: m.pad(x(A), ((1, 2), (0, 1))),
    "where": lambda m, x: m.where(x(A) > 0.5, x(A), x(B)),
    "clip": lambda m, x: m.clip(x(CUBE), -0.3, 0.4),
    "round": lambda m, x: m.round(x(CUBE) * 10),
    "take": lambda m, x: m.take(x(A), x(onp.array([2, 0])), axis=0),
    "sort": lambda m, x: m.sort(x(CUBE), axis=1),
    "argsort": lambda m, x: m.argsort(x(INTS), axis=1),
    "tril": lambda m, x: m.tril(x(A), -1),
    "triu": lambda m, x: m.triu(x(A), 1),
    "diag of matrix": lambda m, x: m.diag(x(A), 1),
    "diag of vector": lambda m, x: m.diag(x(V), -1),
    "trace": lambda m, x: m.trace(x(A[:, :3])),
    "matmul": lambda m, x: m.matmul(x(CUBE), x(A).T),
    "matmul operator": lambda m, x: x(A) @ x(V),
    "dot": lambda m, x: m.dot(x(A), x(V)),
    "dot of more axes": lambda m, x: m.dot(x(CUBE), m.swapaxes(x(CUBE), 1, 2)),
    "tensordot": lambda m, x: m.tensordot(x(CUBE), x(CUBE), axes=([0, 2], [0, 2])),
    "inner": lambda m, x: m.inner(x(A), x(B)),
    "outer": lambda m, x: m.outer(x(V), x(V)),
    "vdot": lambda m, x: m.vdot(x(V), x(V)),
    "einsum": lambda m, x: m.einsum("bij,kj->bik", x(CUBE), x(A)),
    "norm": lambda m, x: m.linalg.norm(x(A), axis=1),
    "zeros_like": lambda m, x: m.zeros_like(x(A)),
    "full_like": lambda m, x: m.full_like(x(A), 2.5),
    "in both orders": lambda m, x: 2 - x(A) / (1 + x(B)) ** 2 + 3 // (x(A) + 1) - (1 % x(B)),
    "integers and fractions": lambda m, x: x(INTS) * 2 + x(INTS) // 2 - x(INTS) % 2,
    "integers divided": lambda m, x: x(INTS) / 4,
    "bits": lambda m, x: (x(INTS) & 3) | (x(INTS) ^ 1),
    "truth": lambda m, x: (x(A) > 0.5) & ~(x(B) > 0.5),
    **{f"np.{n}": lambda m, x, n=n: getattr(m, n)(x(A)) for n in UNARY},
    **{f"np.{n}": lambda m, x, n=n: getattr(m, n)(x(A), x(V)) for n in BINARY},
}
NOT_WIDE = {"integers divided", "mean of integers"}


def test_functions_give_what_numpy_gives():
    found = {name: function(np, np.array) for name, function in FUNCTIONS.items()}
    waitall(*found.values())
    for name, function in FUNCTIONS.items():
        wanted = onp.asarray(function(onp, lambda x: x))
        assert found[name].shape == wanted.shape, name
        kind = "f" if wanted.dtype.kind == "f" else wanted.dtype.kind
        assert found[name].dtype.kind == kind, name
        onp.testing.assert_allclose(
            found[name].asnumpy(), wanted, rtol=2e-5, atol=2e-6, err_msg=name
        )


KEYS = [
    *(1, -1, slice(1, None), slice(None, None, 2), (slice(None), 1), (1, -2), (..., 0), None),
    *((slice(None), None, slice(0, 2)), onp.array([2, 0]), onp.array([True, False, True])),
]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_indices_give_what_numpy_gives_of_present_and_of_pending_arrays(key):
    present = np.array(A)
    pending = np.array(A) + 0
    assert pending._value.tensor is None
    for array in (present, pending):
        onp.testing.assert_array_equal(array[key].asnumpy(), A[key])


def test_an_index_outside_is_an_error_that_names_the_line():
    with pytest.raises(ArrayIndexError, match=r"test_ndarray\.py:\d+"):
        np.array(A)[7]
    with pytest.raises(ArrayIndexError, match="out of bounds for axis 1 with size 4"):
        (np.array(A) + 1)[0, 4]
    with pytest.raises(IndexError):
        np.array(A)[0, 0, 0]


def test_changes_are_seen_through_the_array_and_by_no_other():
    x = np.array(A)
    y = x + 1
    held = x
    x[0] = 5
    x[:, 1] = np.array([7, 8, 9])
    x += 1
    wanted = A.copy()
    wanted[0] = 5
    wanted[:, 1] = [7, 8, 9]
    onp.testing.assert_allclose(held.asnumpy(), wanted + 1)
    onp.testing.assert_allclose(y.asnumpy(), A + 1)


def test_numpy_sees_the_memory_of_an_array_and_an_array_that_of_numpy():
    host = onp.zeros(1024, "float32")
    shared = np.from_numpy(host)
    host[3] = 7
    assert shared[3].item() == 7
    view = onp.asarray(shared)
    assert onp.shares_memory(view, host)
    again = np.from_dlpack(shared)
    assert onp.shares_memory(onp.from_dlpack(again), host)
    copied = shared.asnumpy()
    assert not onp.shares_memory(copied, host)


def test_memory_that_is_not_aligned_is_computed_with_all_the_same():
    host = onp.arange(101, dtype="float32")[1:]
    shared = np.from_numpy(host)
    onp.testing.assert_allclose((shared * 2).asnumpy(), host * 2)


def test_numpys_own_functions_take_arrays():
    x = np.array(A)
    for found in (onp.exp(x), onp.concatenate([x, x]), onp.mean(x), onp.add(x, 1), onp.sum(x)):
        assert isinstance(found, type(x))
    onp.testing.assert_allclose(onp.exp(x).asnumpy(), onp.exp(A), rtol=1e-6)
    assert isinstance(onp.asarray(x) + 1, onp.ndarray)
    onp.testing.assert_allclose((onp.ones(4, "float32") + x).asnumpy(), 1 + A)


def test_values_are_computed_by_printing_and_conversion():
    x = np.array([[1.5, 2.0]])
    assert repr(x * 2) == "array([[3., 4.]], dtype=float32)"
    assert str(x) == "[[1.5 2. ]]"
    assert float(x[0, 0]) == 1.5 and int(x[0, 1]) == 2 and bool(x[0, 0] > 1)
    assert (x + 1).tolist() == [[2.5, 3.0]]
    assert (x * 2).item(1) == 4.0
    assert f"{x[0, 0] * 2:.2f}" == "3.00"
    with pytest.raises(ValueError, match="ambiguous"):
        bool(x > 1)


def test_dtypes_follow_the_rules():
    f16, f32, f64 = (np.ones(2, dtype=d) for d in ("float16", "float32", "float64"))
    i32, i64, flag = np.ones(2, "int32"), np.ones(2, "int64"), np.ones(2, "bool")
    assert (f16 + f32).dtype == "float32" and (f32 + f64).dtype == "float64"
    assert (f16 + i64).dtype == "float16" and (i32 + i64).dtype == "int64"
    assert (i32 + 1).dtype == "int32" and (i32 + 1.5).dtype == "float32"
    assert (i32 / 2).dtype == "float32" and (flag + flag).dtype == "int64"
    assert np.array([1.0]).dtype == "float32" and np.array(onp.ones(1)).dtype == "float64"
    assert np.array([1]).dtype == "int64" and np.array([True]).dtype == "bool"
    assert np.arange(3).dtype == "float32" and np.exp(i32).dtype == "float32"


def test_reshape_takes_all_codes():
    x = np.array(CUBE)
    assert npx.reshape(x, (-2, -5)).shape == (2, 12)
    assert npx.reshape(x, (-6, 1, 2, -4)).shape == (1, 2, 3, 4)
    assert npx.reshape(x, (-2, -2, -6, 2, -1)).shape == (2, 3, 2, 2)
    assert npx.reshape(np.expand_dims(x, 0), (-3, -4)).shape == (2, 3, 4)
    assert x.reshape(6, -1).shape == (6, 4)
    with pytest.raises(ArrayError, match=r"test_ndarray\.py"):
        x.reshape(5, 5)


def test_errors_name_the_line_and_the_shapes():
    with pytest.raises(ArrayError, match=r"test_ndarray\.py:\d+ in .*_npi_add.*\(3, 4\).*\(3,\)"):
        np.array(A) + np.ones(3)
    with pytest.raises(ArrayTypeError, match="takes arrays"):
        npx.relu(A)
    with pytest.raises(ArrayTypeError, match="not a dtype"):
        np.zeros(2, dtype="float31")
    with pytest.raises(ArrayError, match="negative"):
        np.zeros((2, -1))
    with pytest.raises(ArrayTypeError, match="make arrays with"):
        np.ndarray((2, 3))


def test_devices_are_named_and_chosen():
    assert repr(cpu()) == "cpu(0)" and cpu(1) != cpu() and cpu() is cpu(0)
    with cpu(1):
        x = np.zeros(2)
    assert x.device == cpu(1)
    with pytest.raises(ArrayError, match="several devices"):
        x + np.zeros(2)
    onp.testing.assert_array_equal((x.to_device(cpu()) + np.zeros(2)).asnumpy(), 0)
    if not np.num_gpus():
        with pytest.raises(ValueError, match="no device"):
            np.zeros(2, device=gpu(0))


def test_arrays_can_be_pickled_and_are_created_as_numpys_are():
    x = pickle.loads(pickle.dumps(np.array(A) + 1))
    onp.testing.assert_allclose(x.asnumpy(), A + 1)
    for ours, theirs in (
        (np.arange(1, 7, 2), onp.arange(1, 7, 2)),
        (np.linspace(0, 1, 5), onp.linspace(0, 1, 5)),
        (np.eye(3, 4, 1), onp.eye(3, 4, 1)),
        (np.full((2, 2), 3), onp.full((2, 2), 3)),
    ):
        onp.testing.assert_allclose(ours.asnumpy(), theirs)
    np.random.seed(1)
    first = np.random.normal(size=(3,)).asnumpy()
    np.random.seed(1)
    onp.testing.assert_array_equal(np.random.normal(size=(3,)).asnumpy(), first)
