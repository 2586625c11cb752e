"""`relay.transform.CollagePartition` on measured engines."""

from __future__ import annotations

import pytest
import tvm

from compiler import legacy, partition, relay
from compiler.errors import OutOfScopeError, UnknownBackendError


@pytest.fixture(autouse=True)
def _old_names():
    legacy.install()
    yield
    legacy.uninstall()


def module() -> tvm.IRModule:
    x = relay.var("x", shape=(8, 8))
    return tvm.IRModule.from_expr(relay.Function([x], relay.exp(relay.tanh(x))))


def test_collage_measures_the_back_ends_among_its_targets(capfd):
    from tvm.relay.transform import CollagePartition

    targets = [tvm.target.Target("llvm"), "onnxruntime"]
    config = tvm.target.make_compilation_config(tvm.transform.PassContext.current(), targets)
    assert config.primitive_targets == tuple(targets)
    made = CollagePartition(config)(module())
    (line,) = [each for each in capfd.readouterr().err.splitlines() if "placement: " in each]
    ranked = [each.rsplit(" ", 2)[0] for each in line.removeprefix("placement: ").split("; ")]
    assert {"baton", "onnxruntime"} <= set(ranked)
    assert {each.backend for each in partition.subgraphs(made)} <= {"onnxruntime"}


def test_a_target_without_a_back_end_and_an_estimator_are_errors():
    from tvm.relay.transform import CollagePartition

    with pytest.raises(UnknownBackendError, match="'npu'"):
        CollagePartition(tvm.target.make_compilation_config(None, ["llvm", "npu"]))(module())
    with pytest.raises(OutOfScopeError, match="costs are measured"):
        CollagePartition(tvm.target.make_compilation_config(None, "llvm"), cost_estimator=object())
