"""Rules and errors of deferred compute."""

from __future__ import annotations

import numpy as onp
import pytest

from compiler.errors import ArrayIndexError, DeferredComputeError
from compiler.mxnet import (
    clear,
    cpu,
    deferred_compute,
    get_symbol,
    gpu,
    is_deferred_compute,
    np,
    npx,
    set_deferred_compute,
    set_variable,
)
from compiler.mxnet.array import deferred
from compiler.mxnet.symbol import var
from compiler.mxnet.symbol.symbol import Symbol


@pytest.fixture
def x():
    array = np.array(onp.arange(6, dtype="float32").reshape(2, 3))
    set_variable(array, var("x"))
    return array


def test_contexts_nest_and_are_restored_after_an_exception():
    assert not is_deferred_compute()
    with deferred_compute():
        assert is_deferred_compute()
        with deferred_compute(False):
            assert not is_deferred_compute()
        assert is_deferred_compute()
    with pytest.raises(KeyError), deferred.context():
        raise KeyError
    assert not is_deferred_compute()
    assert set_deferred_compute(True) is False
    assert set_deferred_compute(False) is True


def test_an_array_from_outside_is_refused_with_the_line(x):
    plain = np.ones(3)
    with deferred_compute():
        with pytest.raises(DeferredComputeError, match=r"test_deferred\.py:\d+.*_npi_add"):
            x + plain
        with pytest.raises(DeferredComputeError, match="made outside"):
            x * np.array([1.0, 2.0, 3.0])
        with pytest.raises(DeferredComputeError):
            x + onp.ones(3, "float32")


def test_constants_are_taken_where_they_are_allowed(x):
    plain = np.array([1.0, 2.0, 3.0])
    with deferred_compute(allow_constants=True) as trace:
        y = x * plain + plain
    symbol = get_symbol(y)
    assert symbol.list_inputs() == ["x", "const0"]
    onp.testing.assert_array_equal(onp.from_dlpack(trace.constants["const0"].tensor), [1, 2, 3])


def test_arrays_can_not_be_changed_while_a_trace_is_recorded(x):
    with deferred_compute():
        y = x + 1
        for change in (
            lambda: x.__iadd__(1),
            lambda: y.__setitem__(0, 1),
            lambda: np.add(x, 1, out=y),
            lambda: np.ones(3).copyto(y),
        ):
            with pytest.raises(DeferredComputeError, match="in place"):
                change()


def test_indices_that_can_not_be_traced_are_type_errors(x):
    with deferred_compute():
        for key in ([0, 1], onp.array([0]), None, ..., "a"):
            with pytest.raises(TypeError, match="can't be traced"):
                x[key]
        with pytest.raises(
            ArrayIndexError, match="index 7 is out of bounds for axis 0 with size 2"
        ):
            x[7]
        picked = x[np.zeros(2, "int64"), np.ones(2, "int64")]
    onp.testing.assert_array_equal(picked.asnumpy(), [1, 1])


def test_values_may_be_read_and_only_once_are_they_computed(x):
    with deferred_compute():
        y = x * 2
        assert y._value.tensor is None
        assert y.sum().item() == 30
        z = y + 1
    assert [n.op for n in get_symbol(z).graph.nodes if not n.is_variable] == [
        "_npi_multiply_scalar",
        "_npi_add_scalar",
    ]
    onp.testing.assert_array_equal(z.asnumpy(), x.asnumpy() * 2 + 1)


def test_results_used_outside_are_plain_arrays(x):
    with deferred_compute():
        y = x + 1
    z = y * 2
    onp.testing.assert_array_equal(z.asnumpy(), (x.asnumpy() + 1) * 2)
    with pytest.raises(DeferredComputeError, match="not recorded"):
        get_symbol(z)
    with pytest.raises(DeferredComputeError, match="not recorded"):
        get_symbol([np.ones(2)])


def test_get_symbol_can_be_called_again_and_an_input_can_be_an_output(x):
    with deferred_compute():
        y = x + 1
    for _ in range(2):
        symbol = get_symbol([x, y])
        assert symbol.list_inputs() == ["x"] and len(symbol) == 2


def test_clear_makes_plain_arrays_of_inputs_and_results(x):
    with deferred_compute():
        y = np.exp(x)
        z = y + 1
    clear(z)
    for array in (x, y, z):
        with pytest.raises(DeferredComputeError):
            get_symbol(array)
    onp.testing.assert_allclose(z.asnumpy(), onp.exp(x.asnumpy()) + 1, rtol=1e-6)
    with deferred_compute(), pytest.raises(DeferredComputeError):
        x + 1


def test_a_second_variable_is_refused_and_the_same_one_is_not(x):
    symbol = var("y")
    y = np.ones(2)
    set_variable(y, symbol)
    set_variable([y], [symbol])
    with pytest.raises(DeferredComputeError, match="detach"):
        set_variable(y, var("y"))
    set_variable(y.detach(), var("z"))
    with deferred_compute():
        result = x + 1
    with pytest.raises(DeferredComputeError, match="result"):
        set_variable(result, var("r"))
    with pytest.raises(DeferredComputeError, match="expects variables"):
        set_variable(np.ones(2), get_symbol(result))
    with pytest.raises(DeferredComputeError, match="2 outputs"):
        set_variable(np.ones(2), get_symbol([result, x]))


def test_all_arrays_are_checked_before_any_is_bound(x):
    fresh = np.ones(2)
    with pytest.raises(DeferredComputeError):
        set_variable([fresh, x], [var("a"), var("b")])
    set_variable(fresh, var("c"))


def test_creation_operators_become_nodes_without_inputs(x):
    with deferred_compute():
        y = np.tril(np.ones((3, 3))) + np.full((3, 3), 2) + np.eye(3) + x[0]
    symbol = get_symbol(y)
    assert symbol.list_inputs() == ["x"]
    assert isinstance(symbol, Symbol)
    expected = onp.tril(onp.ones((3, 3))) + 2 + onp.eye(3) + onp.arange(3)
    onp.testing.assert_allclose(y.asnumpy(), expected)


def test_a_recorded_array_on_another_device_is_refused(x):
    with deferred_compute(), pytest.raises(DeferredComputeError, match="one device"):
        (x + 1).to_device(gpu(0))
    with deferred_compute():  # CPUs are one memory
        moved = (x + 1).to_device(cpu(1))
        back = (moved * 2).to_device(cpu(0))
    assert (moved.device, back.device) == (cpu(1), cpu(0))
    assert [node.op for node in get_symbol(back).graph.nodes].count("_copyto") == 2
    onp.testing.assert_allclose(back.asnumpy(), (x.asnumpy() + 1) * 2)


def test_a_symbol_computes_what_the_trace_does(x):
    with deferred_compute():
        y = npx.softmax(x * 2, axis=-1).astype("float64")
    symbol = get_symbol(y)
    args, outs, _ = symbol.infer_shape(x=(2, 3))
    assert (args, outs) == ([(2, 3)], [(2, 3)])
    assert y.dtype == "float64"
