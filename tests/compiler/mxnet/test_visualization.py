"""`mx.viz`: tables and drawings of symbols."""

from __future__ import annotations

import pytest

from compiler import mxnet as mx


def network():
    """A dense layer and a loss."""
    dense = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=4, name="fc")
    return mx.sym.SoftmaxOutput(dense, name="softmax")


def test_summary_counts_parameters_without_labels(capsys):
    mx.viz.print_summary(network(), shape={"data": (2, 3)})
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines if line.startswith(("fc", "softmax", "Total"))] == [
        ["fc", "(FullyConnected)", "4", "16", "data"],
        ["softmax", "(SoftmaxOutput)", "4", "0", "fc"],
        ["Total", "params:", "16"],
    ]


def test_summary_without_shapes_lists_operators(capsys):
    mx.viz.print_summary(network())
    assert "softmax (SoftmaxOutput)" in capsys.readouterr().out


def test_plot_shows_operators_and_shapes_but_no_weights():
    pytest.importorskip("graphviz")
    source = mx.viz.plot_network(network(), shape={"data": (2, 3)}).source
    assert "FullyConnected" in source and "(2, 4)" in source
    assert "fc_weight" not in source
    assert "fc_weight" in mx.viz.plot_network(network(), hide_weights=False).source
