"""The neutral graph: its JSON and the subgraphs cut out of it."""

from __future__ import annotations

import json

from compiler.backends.graph import Graph, Names, Node, SubgraphExtractor


def example() -> Graph:
    """x, w -> s0, s1 = split(x); a = add(s0, w); b = add(s1, a); heads b, s0, x."""
    square = [("[2, 2]", "float32")]
    return Graph(
        [
            Node("null", "x", [], {"param": "False"}, square),
            Node("null", "w", [], {"param": "True"}, square),
            Node("split", "s", [(0, 0)], {"axis": "1"}, square * 2),
            Node("add", "a", [(2, 0), (1, 0)], {}, square),
            Node("add", "b", [(2, 1), (3, 0)], {"dtype": "own"}, square),
        ],
        [(4, 0), (2, 0), (0, 0)],
    )


def test_json_has_the_keys_of_symbol_files_and_strings_only() -> None:
    loaded = json.loads(example().to_json())
    assert set(loaded) == {"nodes", "arg_nodes", "heads"}
    assert loaded["arg_nodes"] == [0, 1]
    assert loaded["heads"] == [[4, 0, 0], [2, 0, 0], [0, 0, 0]]
    assert loaded["nodes"][2] == {
        "op": "split",
        "name": "s",
        "attrs": {"shape": "[[2, 2], [2, 2]]", "dtype": "[float32, float32]", "axis": "1"},
        "inputs": [[0, 0, 0]],
    }
    assert loaded["nodes"][0]["attrs"] == {"shape": "[2, 2]", "dtype": "float32", "param": "False"}


def test_an_operator_parameter_is_not_overwritten_by_an_annotation() -> None:
    assert json.loads(example().to_json())["nodes"][4]["attrs"]["dtype"] == "own"


def test_unknown_shapes_are_left_out() -> None:
    graph = Graph([Node("op", "a", [], {}, [("[1]", ""), ("[2]", "int32")])], [(0, 0)])
    assert json.loads(graph.to_json())["nodes"][0]["attrs"] == {"shape": "[[1], [2]]"}


def test_a_subgraph_names_the_variables_behind_its_inputs() -> None:
    found = SubgraphExtractor(example()).extract([4, 3])
    assert [(node.op, node.name) for node in found.nodes] == [
        ("null", "s_output0"),
        ("null", "w"),
        ("add", "a"),
        ("null", "s_output1"),
        ("add", "b"),
    ]
    assert found.nodes[0].attrs == {"isArg": "False", "isAux": "False", "param": "False"}
    assert found.nodes[1].attrs == {
        "isArg": "True",
        "isAux": "False",
        "param": "True",
        "argName": "w",
    }
    assert found.nodes[4].inputs == [(3, 0), (2, 0)]
    assert found.heads == [(4, 0)]


def test_an_entry_read_twice_is_one_variable_and_each_used_output_one_head() -> None:
    graph = example()
    graph.nodes[3].inputs = [(2, 0), (2, 0)]
    assert [n.name for n in SubgraphExtractor(graph).extract([3]).nodes] == ["s_output0", "a"]
    split = SubgraphExtractor(graph).extract([2])
    assert split.heads == [(1, 0), (1, 1)]


def test_a_subgraph_that_nobody_reads_gives_its_last_outputs() -> None:
    graph = example()
    graph.heads = [(3, 0)]
    assert SubgraphExtractor(graph).extract([4]).heads == [(2, 0)]


def test_an_input_never_takes_the_name_of_a_member() -> None:
    graph = example()
    graph.nodes[3].name = "s_output1"
    names = [node.name for node in SubgraphExtractor(graph).extract([3, 4]).nodes]
    assert len(set(names)) == len(names)
    assert "s_output1" in names and "s_output1_1" in names


def test_names_count_up_from_what_is_taken() -> None:
    names = Names(["a", "a_1"])
    assert [names.unique("a"), names.unique("a"), names.unique("b")] == ["a_2", "a_3", "b"]
