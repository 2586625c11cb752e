"""Schedules as Graphviz text."""

from __future__ import annotations

import re

import pytest
from tvm import te

import compiler.legacy.te as cte
from compiler.legacy.te.pictures import (
    viz_dataflow_graph,
    viz_itervar_relationship_graph,
    viz_schedule_tree,
)


@pytest.fixture
def scheduled():
    a = te.placeholder((8, 32), name="A")
    b = te.compute((8, 32), lambda i, j: a[i, j] + 1.0, name="B")
    k = te.reduce_axis((0, 32), name="k")
    c = te.compute((8,), lambda i: te.sum(b[i, k], axis=k), name="C")
    s = cte.create_schedule(c.op)
    outer, _ = s[c].split(k, factor=4)
    s[b].compute_at(s[c], outer)
    s[b].vectorize(b.op.axis[1])
    return s


def test_the_dataflow_graph_has_an_edge_for_each_tensor_that_is_read(scheduled):
    text = viz_dataflow_graph(scheduled, output_dot_string=True)
    assert text.startswith('digraph "Dataflow Graph"')
    edges = re.findall(r"^\s*(\S+ -> \S+)", text, re.M)
    assert sorted(edges) == [
        "Stage_0:O_0 -> Tensor_0_0",
        "Stage_1:O_0 -> Tensor_1_0",
        "Stage_2:O_0 -> Tensor_2_0",
        "Tensor_0_0 -> Stage_1:I_0",
        "Tensor_1_0 -> Stage_2:I_0",
    ]


def test_the_schedule_tree_shows_loops_and_where_a_stage_is_computed(scheduled, tmp_path):
    path = tmp_path / "tree.dot"
    assert viz_schedule_tree(scheduled, dot_file_path=str(path)) is None
    text = path.read_text()
    assert "j(kVectorized)" in text and "k.outer(kCommReduce)" in text
    assert "[A[i, j] + T.float32(1.0)]" in text
    assert "Stage_1 -> Stage_2:IterVar_2_2 " in text and "Stage_2 -> ROOT " in text


def test_the_itervar_graph_shows_splits_and_ranges(scheduled):
    text = viz_itervar_relationship_graph(scheduled, output_dot_string=True)
    for edge in (
        "IterVar_2_1:itervar -> Split_Relation_2_0:Input",
        "Split_Relation_2_0:Outer -> IterVar_2_2:itervar",
        "Split_Relation_2_0:Inner -> IterVar_2_3:itervar",
    ):
        assert edge in text
    assert "k(kCommReduce)<br/>" in text and "(0, 32)" in text
