"""A depth-first walk over a graph."""

from compiler.support.depth_first import depth_first

GRAPH = {"a": ["b", "c"], "b": ["d"], "c": ["d", "e"], "d": [], "e": [], "loop": ["tail"]}
GRAPH["tail"] = ["loop", "e"]


def test_nodes_come_once_after_those_below_them():
    assert list(depth_first(["a", "b"], GRAPH.__getitem__)) == ["d", "b", "e", "c", "a"]


def test_the_node_of_a_cycle_that_is_met_first_comes_last():
    assert list(depth_first(["loop"], GRAPH.__getitem__)) == ["e", "tail", "loop"]
    assert list(depth_first(["tail"], GRAPH.__getitem__)) == ["loop", "e", "tail"]


def test_nodes_of_one_key_are_one():
    below = {1: [2.5, 2.75], 2.5: [], 2.75: []}
    assert list(depth_first([1], below.__getitem__, key=int)) == [2.5, 1]


def test_a_node_below_is_taken_once_the_one_before_it_is_complete():
    seen = []

    def below(name):
        for each in GRAPH[name]:
            seen.append(each)
            yield each

    walk = depth_first(["a"], below)
    assert next(walk) == "d"
    assert seen == ["b", "d"]


def test_a_long_chain_needs_no_recursion():
    assert next(depth_first([0], lambda node: [node + 1] if node < 100_000 else [])) == 100_000
