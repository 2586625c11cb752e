"""Fixtures of the importer tests: small ONNX models, run by Baton's import and by onnxruntime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
import tvm
from onnx import TensorProto, helper
from tvm import relax

from compiler import relay
from compiler.relay.frontend import from_onnx
from compiler.relay.relax_to_relay import to_relax
from compiler.runtime import graph_executor


def make_model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[Any, ...]],
    outputs: list[str],
    weights: dict[str, np.ndarray] | None = None,
    opset: int = 17,
    domains: dict[str, int] | None = None,
    dtypes: dict[str, int] | None = None,
) -> onnx.ModelProto:
    """A model of these nodes; inputs are float32 unless `dtypes` says otherwise."""
    dtypes = dtypes or {}
    graph = helper.make_graph(
        nodes,
        "test",
        [
            helper.make_tensor_value_info(name, dtypes.get(name, TensorProto.FLOAT), shape)
            for name, shape in inputs.items()
        ],
        [
            helper.make_tensor_value_info(name, dtypes.get(name, TensorProto.FLOAT), None)
            for name in outputs
        ],
        [onnx.numpy_helper.from_array(value, name) for name, value in (weights or {}).items()],
    )
    sets = [helper.make_opsetid("", opset)]
    sets += [helper.make_opsetid(name, version) for name, version in (domains or {}).items()]
    return helper.make_model(graph, opset_imports=sets, ir_version=10)


def run_module(
    mod: tvm.IRModule, params: dict[str, Any], feeds: dict[str, np.ndarray]
) -> list[np.ndarray]:
    """Outputs of `main`, compiled by TVM's own pipeline."""
    executable = tvm.compile(to_relax(mod), target=tvm.target.Target({"kind": "llvm"}))
    machine = relax.VirtualMachine(executable, tvm.cpu())
    given = {**params, **{name: tvm.runtime.tensor(value) for name, value in feeds.items()}}
    result = machine["main"](*[given[param.name] for param in mod["main"].params])
    results = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
    return [tensor.numpy() for tensor in results]


def count_operators(mod: tvm.IRModule) -> Counter[str]:
    """Calls in `main` by operator name, without "relax."."""
    counts: Counter[str] = Counter()

    def visit(expr: Any) -> None:
        if isinstance(expr, tvm.ir.Call) and isinstance(expr.op, tvm.ir.Op):
            counts[expr.op.name.removeprefix("relax.")] += 1

    relax.analysis.post_order_visit(mod["main"], visit)
    return counts


@pytest.fixture(scope="session")
def model() -> Callable[..., onnx.ModelProto]:
    """`make_model`."""
    return make_model


@pytest.fixture(scope="session")
def run() -> Callable[..., list[np.ndarray]]:
    """`run_module`."""
    return run_module


@pytest.fixture(scope="session")
def operators() -> Callable[[tvm.IRModule], Counter[str]]:
    """`count_operators`."""
    return count_operators


@pytest.fixture(scope="session")
def agrees() -> Callable[..., tvm.IRModule]:
    """Import and run a model, compare every output with onnxruntime's, return the module."""

    def compare(
        proto: onnx.ModelProto,
        feeds: dict[str, np.ndarray],
        tolerance: float = 1e-5,
        **options: Any,
    ) -> tvm.IRModule:
        session = onnxruntime.InferenceSession(
            proto.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        expected = session.run(None, feeds)
        mod, params = from_onnx(proto, **options)
        outputs = run_module(mod, params, feeds)
        assert len(outputs) == len(expected)
        for output, reference in zip(outputs, expected):
            assert output.shape == reference.shape and output.dtype == reference.dtype
            np.testing.assert_allclose(output, reference, rtol=tolerance, atol=tolerance)
        return mod

    return compare


@pytest.fixture(scope="session")
def runs_as_onnxruntime() -> Callable[..., None]:
    """Build a model's text as `relay.build` does and compare with onnxruntime: fuzzed cases."""

    def compare(
        text: str,
        weights: dict[str, np.ndarray],
        feeds: dict[str, np.ndarray],
        opt_level: int = 3,
        target: str = "llvm",
    ) -> None:
        proto = onnx.parser.parse_model(text)
        proto.graph.initializer.extend(
            onnx.numpy_helper.from_array(value, name) for name, value in weights.items()
        )
        session = onnxruntime.InferenceSession(
            proto.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        with tvm.transform.PassContext(opt_level=opt_level):
            library = relay.build(from_onnx(proto)[0], target)
        module = graph_executor.GraphModule(library["default"](tvm.cpu()))
        module.run(**feeds)
        for index, expected in enumerate(session.run(None, feeds)):
            np.testing.assert_allclose(module.get_output(index).numpy(), expected, 1e-5, 1e-5)

    return compare


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers that are the same in every run."""
    return np.random.default_rng(0)
