"""`foreach`, `while_loop` and `cond`, as they stand, hybridized and partitioned."""

from __future__ import annotations

import numpy as onp
import pytest

from compiler.errors import ArrayError
from compiler.mxnet import np, npx
from compiler.mxnet.gluon import HybridBlock, Parameter, SymbolBlock

X = onp.arange(12, dtype="float32").reshape(4, 3)
Y = onp.ones((4, 3), "float32")


class Scan(HybridBlock):
    """Two sequences, two states, and what the body reads from outside of it."""

    def __init__(self):
        super().__init__()
        self.weight = Parameter("weight", shape=(3,), init="ones")

    def forward(self, x, y, start):
        outer = np.exp(start * 0)

        def body(items, states):
            a, b = items
            total, count = states
            total = total + a * b * self.weight.data() * outer
            return [total * 2, a], [total, count + 1]

        (outs, copies), (total, count) = npx.foreach(body, [x, y], [start, np.zeros_like(start)])
        return outs, copies, total, count


def test_loops_with_several_sequences_and_free_variables_run_both_ways(tmp_path):
    block = Scan()
    block.initialize()
    arguments = [np.array(X), np.array(Y), np.zeros(3)]
    totals = onp.cumsum(X, 0)
    wanted = [totals * 2, X, totals[-1], onp.full(3, 4.0)]
    for result, right in zip(block(*arguments), wanted, strict=True):
        onp.testing.assert_allclose(result.asnumpy(), right, rtol=1e-6)
    block.hybridize()
    for result, right in zip(block(*arguments), wanted, strict=True):
        onp.testing.assert_allclose(result.asnumpy(), right, rtol=1e-6)
    files = block.export(tmp_path / "scan")
    loaded = SymbolBlock.imports(files[0], ["data0", "data1", "data2"], files[1])
    for result, right in zip(loaded(*arguments), wanted, strict=True):
        onp.testing.assert_allclose(result.asnumpy(), right, rtol=1e-6)


def test_loops_nest():
    class Nested(HybridBlock):
        def forward(self, x):
            def outer(row, state):
                def inner(item, total):
                    return item, total + item + state * 0

                _, total = npx.foreach(inner, row.reshape(-1, 1), np.zeros(1))
                return total, state + total

            return npx.foreach(outer, x, np.zeros(1))

    block = Nested()
    for _ in range(2):
        sums, total = block(np.array(X))
        onp.testing.assert_allclose(sums.asnumpy()[:, 0], X.sum(1))
        onp.testing.assert_allclose(total.asnumpy(), [X.sum()])
        block.hybridize()


def test_a_body_that_changes_its_states_or_has_no_steps_is_refused():
    with pytest.raises(ArrayError, match="do not return what they should"):
        npx.foreach(lambda item, state: (item, np.stack([state, state])), np.array(X), np.zeros(3))
    with pytest.raises(ArrayError, match="lengths"):
        npx.foreach(lambda i, s: (i[0], s), [np.array(X), np.zeros((2, 3))], np.zeros(3))
    with pytest.raises(ArrayError, match="lengths"):
        npx.foreach(lambda i, s: (i, s), np.zeros((0, 3)), np.zeros(3))


class Loops(HybridBlock):
    """Sums until a bound is reached that a parameter sets, then takes one of two ways."""

    def __init__(self):
        super().__init__()
        self.step = Parameter("step", shape=(1,), init="ones")

    def forward(self, x, bound):
        def body(total, count):
            total = total + self.step.data() * x[0]
            return total * 2, [total, count + 1]

        rows, (total, count) = npx.while_loop(
            lambda total, count: total.sum() < bound.sum(), body, [x[0] * 0, bound * 0], 5
        )
        way = npx.cond(
            lambda total, _: total.sum() > 20,
            lambda total, shift: total - shift,
            lambda total, shift: np.exp(total * 0) * shift,
            [total, x[1]],
        )
        return rows, total, count, way


def _loops(x, bound):
    rows, total, count = onp.zeros((5, 3), "float32"), onp.zeros(3, "float32"), 0
    while count < 5 and total.sum() < bound:
        total = total + x[0]
        rows[count] = total * 2
        count += 1
    return rows, total, onp.full(1, count), total - x[1] if total.sum() > 20 else x[1]


@pytest.mark.parametrize("way", ["as it stands", "hybridized", "partitioned"])
def test_while_loops_and_branches_follow_the_values_of_each_call(way, tmp_path):
    block = Loops()
    block.initialize()
    x = X[:2] + 1
    if way == "hybridized":
        block.hybridize()
    elif way == "partitioned":
        names = ["_npi_multiply_scalar", "_npi_sum", "_npi_greater_scalar"]
        block.optimize_for(np.array(x), np.ones(1), backend="default", op_names=names)
        assert any(node.op == "_CachedOp" for node in block.export(None)[0].graph.nodes)
    for bound in (0, 13, 1000):
        results = block(np.array(x), np.full((1,), bound))
        for result, right in zip(results, _loops(x, bound), strict=True):
            onp.testing.assert_allclose(result.asnumpy(), right, rtol=1e-6)
    if way == "hybridized":
        files = block.export(tmp_path / "loops")
        loaded = SymbolBlock.imports(files[0], ["data0", "data1"], files[1])
        results = loaded(np.array(x), np.full((1,), 13))
        for result, right in zip(results, _loops(x, 13), strict=True):
            onp.testing.assert_allclose(result.asnumpy(), right, rtol=1e-6)


def test_loops_and_branches_that_make_no_sense_are_refused():
    one = np.ones(1)
    with pytest.raises(ArrayError, match="max_iterations"):
        npx.while_loop(lambda v: v > 0, lambda v: (v, [v]), [one])
    with pytest.raises(ArrayError, match="no loop_vars"):
        npx.while_loop(lambda: one, lambda: ([], []), [], 3)
    with pytest.raises(ArrayError, match="do not return what they should"):
        npx.while_loop(lambda v: v > 0, lambda v: (v, [np.ones(2)]), [one], 3)

    class Uneven(HybridBlock):
        def forward(self, x):
            return npx.cond(x.sum() > 0, lambda: x, lambda: x.sum())

    block = Uneven()
    assert block(one).shape == (1,)
    block.hybridize()
    with pytest.raises(ArrayError, match="do not return what they should"):
        block(one)
