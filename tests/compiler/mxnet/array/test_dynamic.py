"""Operators whose results' shapes depend on values: traced, hybridized, partitioned, exported."""

from __future__ import annotations

import numpy as onp
import pytest

from compiler.errors import ArrayError, DeferredComputeError
from compiler.mxnet import deferred_compute, get_symbol, np, npx, set_variable
from compiler.mxnet.gluon import HybridBlock, SymbolBlock, nn
from compiler.mxnet.symbol import var

RNG = onp.random.default_rng(3)
INPUTS = [RNG.normal(size=(3, 4)).astype("float32")]
INPUTS.append(-onp.ones((3, 4), "float32"))  # of which nothing is selected


class Selects(HybridBlock):
    """Masks, positions and distinct elements, between static operators."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(3, in_units=4)

    def forward(self, x):
        y = np.tanh(x)
        kept = np.exp(y[y > 0]) * 2
        distinct, counts = np.unique(np.round(kept), return_counts=True)
        return kept, np.flatnonzero(kept > 3), distinct, counts, self.dense(x).sum() + kept.sum()


@pytest.fixture
def block():
    np.random.seed(7)
    made = Selects()
    made.initialize()
    return made


def check(block, eager):
    for x, wanted in zip(INPUTS, eager):
        for result, right in zip(block(np.array(x)), wanted, strict=True):
            onp.testing.assert_allclose(result.asnumpy(), right, rtol=1e-5, atol=1e-6)


@pytest.fixture
def eager(block):
    return [[each.asnumpy() for each in block(np.array(x))] for x in INPUTS]


def test_what_lies_between_them_is_compiled(block, eager):
    kept = onp.exp(onp.tanh(INPUTS[0][INPUTS[0] > 0])) * 2
    onp.testing.assert_allclose(eager[0][0], kept, rtol=1e-5)
    onp.testing.assert_array_equal(eager[0][1], onp.flatnonzero(kept > 3))
    block.hybridize()
    check(block, eager)
    # In front of the mask, behind it, and what makes positions of `_npx_nonzero`'s rows.
    assert len(block.cached_op.parts) == 3
    hits = block.cached_op.cache_info().hits
    check(block, eager)
    assert block.cached_op.cache_info().hits > hits


def test_partition_if_dynamic_off_runs_every_operator_alone(block, eager):
    block.hybridize(partition_if_dynamic=False)
    check(block, eager)
    graph = block.export(None)[0].graph
    operators = [node for node in graph.nodes if not node.is_variable]
    assert len(block.cached_op.parts) == len(operators) - 3


def test_backends_claim_around_them_and_the_export_runs(block, eager, tmp_path):
    names = ["_npi_tanh", "_npi_exp", "_npi_multiply_scalar", "_npi_around", "FullyConnected"]
    names += ["_npi_unique", "_npx_nonzero", "_contrib_boolean_mask"]  # which stay outside
    block.optimize_for(np.array(INPUTS[0]), backend="default", op_names=names)
    graph = block.export(None)[0].graph
    claimed = [n.op for each in graph.nodes for g in each.subgraphs for n in g.nodes]
    assert "_npi_exp" in claimed and not {*names[-3:]} & {*claimed}
    check(block, eager)
    files = block.export(tmp_path / "net")
    check(SymbolBlock.imports(files[0], ["data"], files[1]), eager)


def test_a_symbol_of_them_runs_as_mxnet_does():
    x = np.array(INPUTS[0])
    set_variable(x, var("x"))
    with deferred_compute():
        found = get_symbol([np.flatnonzero(x > 0), x[x > 0] + 1])
    assert [n.op for n in found.graph.nodes if n.op.startswith("_contrib")]
    exe = found.bind(args={"x": INPUTS[0]})
    for data in INPUTS:
        positions, values = exe.forward(x=data)
        onp.testing.assert_array_equal(positions, onp.flatnonzero(data > 0))
        onp.testing.assert_allclose(values, data[data > 0] + 1, rtol=1e-6)


def test_masks_of_some_axes_and_indices_from_the_end():
    class Rows(HybridBlock):
        def forward(self, x, rows, both):
            return x[rows], x[both][-1], npx.boolean_mask(x, rows), x[both].sum()

    x = onp.arange(24, dtype="float32").reshape(3, 4, 2)
    block = Rows()
    masks = [
        (onp.array([True, False, True]), x[:, :, 0] > 7),
        (onp.array([False, True, False]), x[:, :, 0] < 3),
    ]
    for hybridized in (False, True):
        block.hybridize(hybridized)
        for rows, both in masks:
            found = block(np.array(x), np.array(rows), np.array(both))
            wanted = [x[rows], x[both][-1], x[rows], x[both].sum()]
            for result, right in zip(found, wanted, strict=True):
                onp.testing.assert_allclose(result.asnumpy(), right, rtol=1e-6)


def test_a_forward_that_depends_on_such_a_shape_is_refused():
    class Mean(HybridBlock):
        def forward(self, x):
            kept = x[x > 0]
            return kept.sum() / kept.shape[0]

    block, x = Mean(), np.array(INPUTS[0])
    onp.testing.assert_allclose(block(x).item(), INPUTS[0][INPUTS[0] > 0].mean(), rtol=1e-6)
    block.hybridize()
    with pytest.raises(DeferredComputeError, match=r"only values decide .*test_dynamic\.py"):
        block(x)
    with pytest.raises(ArrayError, match="a mask of shape"):
        npx.boolean_mask(x, np.ones(7))
