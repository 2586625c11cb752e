"""Registration of partitioners."""

from __future__ import annotations

import subprocess
import sys

import pytest

from compiler.backends import get_partitioner
from compiler.errors import PartitionError, UnknownBackendError
from compiler.partition import Strategy, list_partitioners, register, unregister


def nothing(graph_json: str, ids: list[int], options: dict[str, str]) -> None:
    pass


def test_partitioners_are_listed_sorted_and_can_be_removed() -> None:
    register("zeta", Strategy("s", nothing))
    register("alpha", [Strategy("s", nothing), Strategy("t", nothing)])
    assert [n for n in list_partitioners() if n in ("alpha", "zeta")] == ["alpha", "zeta"]
    assert [strategy.name for strategy in get_partitioner("alpha").strategies] == ["s", "t"]
    unregister("alpha")
    assert "alpha" not in list_partitioners()


def test_a_taken_name_is_refused_unless_replaced() -> None:
    register("mine", Strategy("old", nothing))
    with pytest.raises(PartitionError, match=r"'mine' is already registered.*replace=True"):
        register("mine", Strategy("new", nothing))
    assert get_partitioner("mine").strategies[0].name == "old"
    register("mine", Strategy("new", nothing), replace=True)
    assert get_partitioner("mine").strategies[0].name == "new"


def test_register_decorates_a_function() -> None:
    @register("decorated")
    def claims(graph_json: str, ids: list[int], options: dict[str, str]) -> None:
        pass

    (strategy,) = get_partitioner("decorated").strategies
    assert (strategy.name, strategy.supported_ops) == ("claims", claims)
    assert strategy.subgraph_op == "_custom_subgraph_op"


def test_unregistering_an_unknown_name_lists_the_known_ones() -> None:
    register("known", Strategy("s", nothing))
    with pytest.raises(UnknownBackendError, match=r"'absent'.*known") as caught:
        unregister("absent")
    assert isinstance(caught.value, KeyError)


@pytest.mark.parametrize(
    ("name", "strategies", "message"),
    [
        ("", lambda: Strategy("s", nothing), "non-empty str"),
        (3, lambda: Strategy("s", nothing), "non-empty str"),
        ("p", lambda: [], "no strategy"),
        ("p", lambda: [nothing], "is not a Strategy"),
        ("p", lambda: [Strategy("s", nothing)] * 2, "share a name: s, s"),
        ("p", lambda: Strategy("", nothing), "non-empty str"),
        ("p", lambda: Strategy("s", "exp"), "supported_ops is not callable"),
        ("p", lambda: Strategy("s", nothing, accept_subgraph=True), "accept_subgraph is not"),
        ("p", lambda: Strategy("s", nothing, subgraph_op=""), "subgraph_op"),
        ("p", lambda: Strategy("s"), "needs exactly one of"),
        ("p", lambda: Strategy("s", nothing, selector=nothing), "needs exactly one of"),
        ("p", lambda: Strategy("s", selector=3), "selector is not callable"),
        ("p", lambda: Strategy("s", nothing, nothing, review=nothing), "two names of one"),
    ],
)
def test_registrations_that_make_no_sense_are_refused(name, strategies, message) -> None:
    with pytest.raises(PartitionError, match=message):
        register(name, strategies())
    assert "p" not in list_partitioners()


def test_registering_needs_no_tvm() -> None:
    code = "import sys, compiler.partition; sys.exit('tvm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
