"""`foreach`, as it stands and hybridised."""

from __future__ import annotations

import numpy as onp
import pytest

from compiler import np, npx
from compiler.errors import ArrayError
from compiler.gluon import HybridBlock, Parameter, SymbolBlock

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
    with pytest.raises(ArrayError, match="changes the types of its states"):
        npx.foreach(lambda item, state: (item, np.stack([state, state])), np.array(X), np.zeros(3))
    with pytest.raises(ArrayError, match="lengths"):
        npx.foreach(lambda i, s: (i[0], s), [np.array(X), np.zeros((2, 3))], np.zeros(3))
    with pytest.raises(ArrayError, match="lengths"):
        npx.foreach(lambda i, s: (i, s), np.zeros((0, 3)), np.zeros(3))
