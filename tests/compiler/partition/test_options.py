"""Options that every backend has: sizes, numbers, sharing, time limits, refusal."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from compiler import relay
from compiler.backends.graph import VARIABLE, Graph, Node
from compiler.errors import PartitionCallbackError, PartitionError
from compiler.partition import Strategy, partition, partition_with_report, register, subgraphs
from compiler.partition.options import Limits, bounded
from compiler.partition.regions import find_regions

from .conftest import claim, execute
from .conftest import random as values
from .test_driver import Detour, W, X, detour
from .test_selector import acyclic


def chain_module(*constants: np.ndarray, width: int = 4) -> tvm.IRModule:
    """For each constant: add it, exp; log between the pairs."""
    builder = relax.BlockBuilder()
    value = x = relax.Var("x", relax.TensorType((width,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            for constant in constants:
                value = builder.emit(relax.op.add(value, relax.const(constant)))
                value = builder.emit(relax.op.exp(value))
                value = builder.emit(relax.op.log(value))
            out = builder.emit_output(value)
        builder.emit_func_output(out)
    return builder.get()


def test_min_ops_sends_small_subgraphs_back_with_the_reason(claiming: Callable[..., str]) -> None:
    result = partition_with_report(Detour, claiming("exp", "log"), min_ops=3)
    assert not subgraphs(result.module)
    (candidate,) = result.candidates
    assert not candidate.accepted
    assert candidate.reason == "min_ops=3: it has 2"
    assert candidate.operators == ("exp", "log")


@pytest.mark.parametrize("most", [1, 2, 3])
def test_max_ops_splits_and_the_numbers_stay(claiming: Callable[..., str], most: int) -> None:
    result = partition(Detour, claiming(), max_ops=most)
    sizes = [len(info.operators) for info in subgraphs(result)]
    assert sum(sizes) == 5
    assert max(sizes) == most
    np.testing.assert_allclose(execute(result, X, W)[0], detour(X, W), rtol=1e-5)


def test_splitting_random_regions_leaves_an_acyclic_graph_of_connected_parts() -> None:
    generator = random.Random(3)
    for _ in range(200):
        size = generator.randrange(2, 60)
        nodes = [Node(VARIABLE, "x", types=[("[4]", "float32")])]
        for index in range(1, size):
            count = generator.randrange(1, 4)
            sources = [(generator.randrange(max(0, index - 9), index), 0) for _ in range(count)]
            nodes.append(Node("op", f"n{index}", sources, types=[("[4]", "float32")]))
        graph = Graph(nodes, [(size - 1, 0)])
        marks = [-2] + [generator.choice([-1, -1, -2]) for _ in range(size - 1)]
        most = generator.randrange(1, 6)
        nbytes = generator.choice([None, 96])
        limits = Limits(max_ops=most, max_bytes=nbytes)
        found = bounded(graph, find_regions(graph.predecessors(), marks), limits)
        pieces = [members for members, _ in found]
        assert sorted(node for piece in pieces for node in piece) == [
            node for node, mark in enumerate(marks) if mark == -1
        ]
        assert all(len(piece) <= most for piece in pieces)
        assert acyclic(graph, pieces)


def test_max_bytes_counts_each_tensor_once_and_rejects_what_can_not_fit(
    claiming: Callable[..., str],
) -> None:
    name = claiming()  # exp and add touch 128 (x, a, b) and 32 (w) bytes, log 128 more
    assert [len(info.operators) for info in subgraphs(partition(Detour, name, max_bytes=512))] == [
        2,
        2,
        1,
    ]
    result = partition_with_report(Detour, name, max_bytes=255)
    assert not subgraphs(result.module)
    assert {c.reason for c in result.candidates} == {
        "max_bytes=255: it touches 256",
        "max_bytes=255: it touches 288",
        "max_bytes=255: it touches 384",
    }


def test_max_subgraphs_keeps_the_largest(claiming: Callable[..., str]) -> None:
    name = claiming("exp", "add")
    mod = chain_module(*[np.zeros(4, "float32")] * 3)
    result = partition_with_report(mod, name, max_subgraphs=1, max_ops=2)
    assert [c.accepted for c in result.candidates] == [True, False, False]
    assert "max_subgraphs=1" in result.candidates[1].reason


def test_identical_subgraphs_share_one_function_and_constants_that_differ_become_inputs(
    claiming: Callable[..., str],
) -> None:
    name = claiming("exp", "add")
    constants = [values((4,), seed) for seed in range(3)]
    mod = chain_module(*constants)
    result = partition(mod, name, dedup_subgraph=True)
    (info,) = subgraphs(result)
    assert info.operators == ("add", "exp")
    assert len(result[info.name].params) == 2
    x = values((4,), 9)
    np.testing.assert_allclose(execute(result, x)[0], x + sum(constants), rtol=1e-5)
    assert len(subgraphs(partition(mod, name))) == 3


def test_constants_of_equal_content_stay_inside_the_shared_function(
    claiming: Callable[..., str],
) -> None:
    constants = [np.full(4, 2, "float32") for _ in range(3)]
    result = partition(chain_module(*constants), claiming("exp", "add"), dedup_subgraph="True")
    (info,) = subgraphs(result)
    assert len(result[info.name].params) == 1
    x = values((4,), 9)
    np.testing.assert_allclose(execute(result, x)[0], x + 6, rtol=1e-5)


def test_subgraphs_with_different_attributes_do_not_share() -> None:
    def accept(text, subgraph_id, options, attrs, args, aux):
        attrs["slot"] = str(subgraph_id % 2)
        return True

    register("slots", Strategy("s", claim("exp", "add"), accept))
    mod = chain_module(*[np.zeros(4, "float32")] * 4)
    found = subgraphs(partition(mod, "slots", dedup_subgraph=True))
    assert sorted(info.attrs["slot"] for info in found) == ["0", "1"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_ops": "few"}, "min_ops is 'few'; it must be a whole number above 0"),
        ({"max_ops": 0}, "max_ops is '0'"),
        ({"max_bytes": 1.5}, "max_bytes is '1.5'"),
        ({"callback_timeout": "inf"}, "callback_timeout is 'inf'; it must be a number above 0"),
        ({"dedup_subgraph": "maybe"}, "dedup_subgraph is 'maybe'"),
        ({"on_compile_error": "retry"}, "on_compile_error is 'retry'; .* raise, back, split"),
    ],
)
def test_options_of_the_wrong_kind_are_refused(claiming, options, message) -> None:
    with pytest.raises(PartitionError, match=message):
        partition(Detour, claiming("exp"), **options)


def test_a_partitioner_can_refuse_options_before_any_callback_runs() -> None:
    seen = []

    def check(options: dict[str, str]) -> str | None:
        return None if options.get("precision") == "int8" else "precision must be int8"

    def supported(text, ids, options) -> None:
        seen.append(options)

    register("strict", Strategy("s", supported), check_options=check)
    with pytest.raises(PartitionError, match="'strict' refuses the options: precision must be"):
        partition(Detour, "strict")
    assert not seen
    partition(Detour, "strict", precision="int8")
    assert seen == [{"precision": "int8"}]


def test_the_reason_of_a_rejection_is_reported() -> None:
    def accept(text, subgraph_id, options, attrs, args, aux):
        attrs["reason"] = "too hot"
        return False

    register("picky", Strategy("s", claim("exp"), review=accept))
    (candidate,) = partition_with_report(Detour, "picky").candidates
    assert (candidate.accepted, candidate.reason) == (False, "too hot")


def test_a_callback_that_hangs_is_one_clear_error() -> None:
    ended = threading.Event()

    def supported(text, ids, options) -> None:
        try:
            while True:
                time.sleep(0.01)
        finally:
            ended.set()

    register("hanging", Strategy("s", supported))
    message = r"'hanging', strategy 's': supported_ops did not return within callback_timeout=0.2 s"
    with pytest.raises(PartitionCallbackError, match=message):
        partition(Detour, "hanging", callback_timeout=0.2)
    assert ended.wait(5), "the abandoned callback was not interrupted"


def test_callbacks_in_time_work_as_without_a_limit(claiming: Callable[..., str]) -> None:
    result = partition(Detour, claiming("exp", "add"), callback_timeout=60)
    assert [info.operators for info in subgraphs(result)] == [("exp", "add"), ("add", "add")]


@pytest.mark.parametrize(
    ("backend", "options", "message"),
    [
        ("llvm", {"op": "exp"}, "has no option 'op'; did you mean ops"),
        ("llvm", {"min_op": 3}, "has no option 'min_op'; did you mean min_ops"),
        ("cuda", {"tagret": "cuda"}, "has no option 'tagret'; did you mean target"),
        ("onnxruntime", {"op": "exp"}, "has no option 'op'; did you mean ops"),
        ("cudnn", {"op": "exp"}, "has no option 'op'; did you mean ops"),
        ("llvm", {"ops": "Exp"}, "no operator is named 'Exp'; did you mean 'exp'"),
        ("default", {"op_names": "Exp"}, "no operator is named 'Exp'; did you mean 'exp'"),
        ("llvm", {"ops": 5}, "ops has '5'; give names of operators"),
        ("llvm", {"ops": "exp,"}, "ops has ''; give names of operators"),
        ("default", {"op_names": "+"}, r"op_names is '\+'; give op_names="),
        (("onnxruntime", "llvm"), {"tarrget": 1}, "'onnxruntime', 'llvm' has no option 'tarrget'"),
    ],
)
def test_built_in_partitioners_reject_options_that_they_do_not_read(
    backend: str | tuple[str, ...], options: dict[str, Any], message: str
) -> None:
    x = relay.var("x", shape=(2, 3))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.exp(x)))
    with pytest.raises(PartitionError, match=message):
        partition(mod, backend, **options)


def test_a_chain_reads_the_options_of_all_its_partitioners() -> None:
    x = relay.var("x", shape=(2, 3))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.exp(x)))
    (found,) = subgraphs(partition(mod, ["onnxruntime", "llvm"], target="llvm", ops="exp, log"))
    assert found.operators == ("exp",)
