"""Pictures of modules: as text, as Graphviz source, with parsers of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm

from compiler import relay
from compiler.relay import viz
from compiler.relay.viz.interface import VizNode, VizParser
from compiler.relay.viz.terminal import TermVizParser


@pytest.fixture
def module() -> tvm.IRModule:
    data = relay.var("data", shape=(2, 4))
    weight = relay.var("weight", shape=(3, 4))
    hidden = relay.nn.relu(relay.nn.dense(data, weight))
    left = relay.split(hidden, 3, axis=1)[0]
    bias = relay.const(np.ones((1,), "float32"))
    return tvm.IRModule.from_expr(relay.Function([data, weight], relay.add(left, bias)))


def test_a_module_is_shown_as_a_tree(
    module: tvm.IRModule, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    viz.RelayVisualizer(module, {"weight": None}).render()
    text = capsys.readouterr().out.rstrip("\n")
    assert text.splitlines() == [
        "@main([data, weight])",
        "`--Call ",
        "   |--add ",
        "   |--TupleGetItem idx: 0",
        "   |  `--Call ",
        "   |     |--split ",
        "   |     `--Call ",
        "   |        |--nn.relu ",
        "   |        `--Call ",
        "   |           |--nn.dense ",
        "   |           |--Var(Input) name_hint: data, shape: (2, 4), dtype: float32",
        "   |           `--Var(Param) name_hint: weight, shape: (3, 4), dtype: float32",
        "   `--Const shape: (1,), dtype: float32",
    ]
    path = tmp_path / "module.txt"
    viz.RelayVisualizer(module, {"weight": None}).render(str(path))
    assert path.read_text() == text


def test_a_parser_of_ones_own_decides_what_is_seen(
    module: tvm.IRModule, capsys: pytest.CaptureFixture[str]
) -> None:
    class Renaming(VizParser):
        def get_node_edges(self, node: Any, relay_param: Any, node_to_id: Any) -> Any:
            if isinstance(node, tvm.relax.Var):
                return VizNode(node_to_id[node], "Mine", str(node.name)), []
            return TermVizParser().get_node_edges(node, relay_param, node_to_id)

    viz.RelayVisualizer(module, {}, viz.TermPlotter(), Renaming()).render()
    shown = capsys.readouterr().out
    assert "Mine data" in shown and "Var(" not in shown


def test_graphviz_gets_a_cluster_of_every_function(module: tvm.IRModule) -> None:
    pytest.importorskip("graphviz", reason="the graphviz package is not installed: the extra 'viz'")
    plotter = viz.DotPlotter(get_node_attr=lambda node: {"color": "red"})
    viz.RelayVisualizer(module, {}, plotter, viz.DotVizParser())
    source = plotter.source()
    assert "subgraph cluster_main" in source and "Call nn.dense" in source
    assert "color=red" in source and source.count("->") == 8


def test_a_module_deeper_than_pythons_stack_is_shown(tmp_path: Path) -> None:
    data = relay.var("data", shape=(2,))
    result = data
    for _ in range(3000):
        result = relay.exp(result)
    path = tmp_path / "deep.txt"
    deep = tvm.IRModule.from_expr(relay.Function([data], result))
    viz.RelayVisualizer(deep).render(str(path))
    assert path.read_text().count("Call") == 3000
