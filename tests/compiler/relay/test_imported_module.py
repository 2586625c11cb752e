"""An imported model is built from its Relax module; a changed one is lowered once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax
from tvm.ir.instrument import pass_instrument

from compiler import relay
from compiler.ir.rewrite import CallRule, rewrite_calls
from compiler.relay import calling_convention, relay_to_relax
from compiler.relay.relax_to_relay import imported_relax_module


@pass_instrument
class PassCounter:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def run_before_pass(self, _mod: tvm.IRModule, info: Any) -> None:
        self.counts[str(info.name)] += 1


def imported(kinds: str = "Mul Erf Add") -> tvm.IRModule:
    nodes = [
        helper.make_node(
            kind, [f"x{i}", "c"] if kind in ("Add", "Mul") else [f"x{i}"], [f"x{i + 1}"]
        )
        for i, kind in enumerate(kinds.split())
    ]
    tensor = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "graph",
        [tensor("x0", TensorProto.FLOAT, [4])],
        [tensor(f"x{len(nodes)}", TensorProto.FLOAT, [4])],
        [numpy_helper.from_array(np.full(4, 1.5, "float32"), "c")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    return relay.frontend.from_onnx(onnx.shape_inference.infer_shapes(model))[0]


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> list[relax.Function]:
    """Functions whose Relay operators were lowered."""
    found: list[relax.Function] = []
    lower_function = relay_to_relax._lowered
    monkeypatch.setattr(
        relay_to_relax, "_lowered", lambda each: found.append(each) or lower_function(each)
    )
    return found


def test_an_imported_module_is_built_without_lowering_relay_operators(
    lowered: list[relax.Function],
) -> None:
    mod = imported()
    library = relay.build(mod, "llvm")
    assert not lowered
    assert library.ir_mod.same_as(mod)


def test_a_module_that_a_pass_changed_is_lowered_once(lowered: list[relax.Function]) -> None:
    changed = relay.transform.FoldConstant()(imported())
    with tvm.transform.PassContext(opt_level=3, instruments=[PassCounter()]):  # no cache
        relay.build(changed, "llvm")
    assert len(lowered) == 1


def test_a_module_changed_in_place_is_no_longer_the_imported_one() -> None:
    mod, other = imported(), imported("Erf")
    assert imported_relax_module(mod) is not None
    mod["main"] = other["main"]
    assert imported_relax_module(mod) is None
    assert len(calling_convention.as_module(mod)["main"].body.blocks[0].bindings) == 1


def test_each_recognizer_runs_once_per_build() -> None:
    counter = PassCounter()
    mod = imported()
    with tvm.transform.PassContext(opt_level=3, instruments=[counter]):
        relay.build(mod, "llvm")
    recognizers = {name: n for name, n in counter.counts.items() if name.startswith("Recognize")}
    assert recognizers == {"RecognizeGelu": 1, "RecognizeLayerNorm": 1, "RecognizeSilu": 1}
    assert counter.counts["CanonicalizeBindings"] <= 3


class _DropRelu(CallRule):
    def rewrite(self, call: relax.Call, name: str) -> relax.Expr | None:
        return call.args[0] if name == "nn.relu" else None


def test_replaced_calls_leave_no_aliases(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value = x
            for _ in range(20):
                value = builder.emit(relax.op.nn.relu(value))
            result = builder.emit_output(relax.op.exp(value))
        builder.emit_func_output(result)
    left = []
    canonicalize = relax.transform.CanonicalizeBindings
    monkeypatch.setattr(
        relax.transform,
        "CanonicalizeBindings",
        lambda: (
            lambda mod: left.append(len(mod["main"].body.blocks[0].bindings)) or canonicalize()(mod)
        ),
    )
    rewrite_calls(builder.get(), _DropRelu)
    assert left == [1]
