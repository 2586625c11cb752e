"""Lazy evaluation: what is compiled, and how often."""

from __future__ import annotations

import threading

import numpy as onp
import pytest

from compiler.errors import ArrayError
from compiler.mxnet import np
from compiler.mxnet.array import engine
from compiler.mxnet.array.ndarray import waitall


@pytest.fixture(autouse=True)
def fresh_cache():
    engine.cache_clear()


def test_nothing_is_computed_before_a_value_is_asked_for():
    x = np.ones((2, 2))
    y = np.exp(x) + 1
    assert y.shape == (2, 2) and y._value.tensor is None
    assert engine.cache_info().misses == 0
    y.wait_to_read()
    assert engine.cache_info().misses == 1 and y._value.record is None


def test_a_chain_is_one_program_that_is_compiled_once():
    for k in range(5):
        x = np.full((2, 3), k)
        onp.testing.assert_allclose((np.tanh(x * k) + 1 / (k + 1)).asnumpy(),
                                    onp.tanh(k * k * 1.0) + 1 / (k + 1), rtol=1e-5)  # fmt: skip
    info = engine.cache_info()
    assert (info.misses, info.hits) == (1, 4)


def test_values_that_are_named_are_computed_along_and_not_again():
    a = np.exp(np.ones(3))
    b = a + 1
    c = a * 2
    b.wait_to_read()
    assert a._value.tensor is not None and c._value.tensor is None
    c.wait_to_read()
    onp.testing.assert_allclose(c.asnumpy(), 2 * onp.e, rtol=1e-6)
    assert engine.cache_info().misses == 2


def test_long_chains_are_computed_in_pieces():
    x = np.zeros(2)
    for _ in range(150):
        x = x + 1
    assert x._value.record.depth <= engine.LONGEST_CHAIN
    onp.testing.assert_array_equal(x.asnumpy(), 150)


def test_several_arrays_are_computed_together():
    x = np.ones(3)
    results = [x + k for k in range(4)]
    waitall(*results)
    assert engine.cache_info().misses == 1
    onp.testing.assert_array_equal(onp.stack([r.asnumpy() for r in results])[:, 0], range(1, 5))


def test_an_error_while_compiling_names_the_line_that_recorded_the_operator(monkeypatch):
    from compiler.errors import BuildError

    def refuse(*_, **__):
        raise BuildError("no such kernel")

    y = np.cosh(np.ones(3))
    monkeypatch.setattr(engine, "Program", refuse)
    with pytest.raises(ArrayError, match=r"_npi_cosh at .*test_engine\.py:\d+ in test_an_error"):
        y.asnumpy()
    monkeypatch.undo()
    onp.testing.assert_allclose(y.asnumpy(), onp.cosh(1), rtol=1e-6)


def test_threads_evaluate_side_by_side():
    results = {}

    def work(k):
        x = np.full((4,), k)
        for _ in range(20):
            x = np.sqrt(x * x) + 1
        results[k] = x.asnumpy()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k in range(4):
        onp.testing.assert_allclose(results[k], k + 20, rtol=1e-5)
