"""An operator that is added as docs/add_an_operator.md says is known to every tool."""

from __future__ import annotations

import importlib.util
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from compiler import relay
from compiler.relay import analysis, transform
from compiler.relay.dataflow_pattern import is_op, wildcard
from compiler.relay.nested_expressions import nested, post_order
from compiler.relay.op import raising, registry
from compiler.runtime import graph_executor

NAME = "nn.softplus"
DOCUMENT = Path(__file__).parents[4] / "docs" / "add_an_operator.md"


@pytest.fixture(scope="module")
def added(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The module that the document's code makes; its operator goes again afterwards."""
    registry.names()
    found = re.search(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None and NAME not in registry.names()
    path = tmp_path_factory.mktemp("added") / "softplus.py"
    path.write_text(found.group(1), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("added_softplus", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["added_softplus"] = module
    spec.loader.exec_module(module)
    yield module
    del registry.OPERATORS[NAME], registry._BUILDERS[NAME], raising._RULES[NAME]
    del sys.modules["added_softplus"]


@pytest.fixture
def mod(added: Any) -> tvm.IRModule:
    """conv2d, softplus, conv2d."""
    x, w = relay.var("x", shape=(1, 4, 6, 6)), relay.var("w", shape=(4, 4, 3, 3))
    y = relay.nn.conv2d(x, w, padding=(1, 1), channels=4, kernel_size=(3, 3))
    y = relay.nn.softplus(y, beta=2.0)
    y = relay.nn.conv2d(y, w, padding=(1, 1), channels=4, kernel_size=(3, 3))
    return tvm.IRModule.from_expr(relay.Function([x, w], y))


def calls(mod: tvm.IRModule, name: str = NAME) -> list[relax.Call]:
    body = nested(mod["main"])
    return [
        node
        for node in post_order(body)
        if isinstance(node, relax.Call) and getattr(node.op, "name", "") == name
    ]


def test_builder_types_and_registry_know_it(added: Any, mod: tvm.IRModule) -> None:
    assert relay.nn.softplus is added.softplus and "softplus" in dir(relay.op.nn)
    assert relay.op.get(NAME).get_attr("TOpPattern") == relay.op.op.OpPattern.ELEMWISE
    (call,) = calls(transform.InferType()(mod))
    assert [int(extent) for extent in call.ty.shape.values] == [1, 4, 6, 6]
    assert dict(call.attrs.items()) == {"beta": 2.0, "threshold": 20.0}


def test_text_and_json_know_it(mod: tvm.IRModule) -> None:
    text = relay.astext(mod)
    assert "nn.softplus(%0, beta=2f)" in text
    for again in (relay.fromtext(text), tvm.ir.load_json(tvm.ir.save_json(mod))):
        assert relay.astext(again) == text and len(calls(again)) == 1


def test_passes_know_it(mod: tvm.IRModule) -> None:
    fused = transform.FuseOps(fuse_opt_level=2)(mod)
    kernels = [node.op for node in post_order(nested(fused["main"])) if hasattr(node, "op")]
    assert len(kernels) == 2  # conv2d with softplus, conv2d

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (call,) = calls(transform.ToMixedPrecision("float16", missing_op_mode=0)(mod))
    assert str(call.ty.dtype) == "float16"

    converted = transform.ConvertLayout({"nn.conv2d": ["NHWC", "HWIO"]})(mod)
    (call,) = calls(converted)
    assert [int(extent) for extent in call.ty.shape.values] == [1, 6, 6, 4]
    data_moves = [c for c in calls(converted, "layout_transform") if c.ty.shape.values[0] == 1]
    assert len(data_moves) == 2  # of the input and of the result, none around the softplus


def test_analyses_and_patterns_know_it(mod: tvm.IRModule) -> None:
    assert analysis.list_op_freqs(mod) == {"nn.conv2d": 2, NAME: 1}
    pattern = is_op(NAME)(is_op("nn.conv2d")(wildcard(), wildcard()))
    partitioned = tvm.transform.Sequential(
        [
            transform.MergeComposite([("mine.conv_softplus", pattern)]),
            transform.AnnotateTarget("mine"),
            transform.MergeCompilerRegions(),
            transform.PartitionGraph(),
        ]
    )(mod)
    assert len(partitioned.get_global_vars()) == 2


def test_relaxs_own_operator_becomes_it(mod: tvm.IRModule) -> None:
    lowered = relay.to_relax(mod)
    assert not calls(lowered)
    assert len(calls(relay.from_relax(lowered))) == 1


def test_it_builds_and_runs(added: Any) -> None:
    x = relay.var("x", shape=(2, 3))
    function = relay.Function([x], relay.nn.softplus(x, beta=2.0))
    lib = relay.build(tvm.IRModule.from_expr(function), "llvm")
    module = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    data = np.linspace(-2, 2, 6, dtype="float32").reshape(2, 3)
    module.run(x=data)
    np.testing.assert_allclose(
        module.get_output(0).numpy(), np.log1p(np.exp(2 * data)) / 2, rtol=1e-5, atol=1e-6
    )
