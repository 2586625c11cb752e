"""Small libraries to run, export and load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from compiler.lowering.codegen.lift_constants import lift_constants
from compiler.runtime import FactoryModule, Metadata, TensorInfo


def _build(
    inputs: Sequence[tuple[str, tuple[int, ...], str]], emit: Callable[..., Any], **fields: Any
) -> FactoryModule:
    """Compile a dataflow `main` whose body `emit(builder, *inputs)` emits."""
    builder = relax.BlockBuilder()
    variables = [relax.Var(name, relax.TensorType(shape, dtype)) for name, shape, dtype in inputs]
    with builder.function("main", variables):
        with builder.dataflow():
            result = builder.emit_output(emit(builder, *variables))
        builder.emit_func_output(result)
    mod, params = lift_constants(builder.get())
    types = result.ty.fields if isinstance(result.ty, tvm.ir.TupleType) else [result.ty]
    outputs = tuple(
        TensorInfo(f"output{index}", tuple(int(extent) for extent in ty.shape), str(ty.dtype))
        for index, ty in enumerate(types)
    )
    metadata = Metadata(
        mod_name=fields.pop("mod_name", "default"),
        inputs=tuple(TensorInfo(*described) for described in inputs),
        outputs=outputs,
        target=fields.pop("target", "llvm -mcpu=x86-64"),
        report=fields.pop("report", {"kernels": ["matmul"]}),
        **fields,
    )
    executable = tvm.compile(mod, target=tvm.target.Target({"kind": "llvm", "mcpu": "x86-64"}))
    return FactoryModule(executable, metadata, dict(params))


@dataclass
class Network:
    """A dense layer and a residual: outputs relu(x @ w + b) and that @ v + y."""

    library: FactoryModule
    w: np.ndarray
    b: np.ndarray
    v: np.ndarray

    def reference(self, x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
        hidden = np.maximum(x.astype("float64") @ self.w + self.b, 0)
        return [hidden, hidden @ self.v + y]

    def inputs(self, seed: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(seed)
        return {
            "x": rng.standard_normal((2, 16)).astype("float32"),
            "y": rng.standard_normal((2, 24)).astype("float32"),
        }


def _network(**fields: Any) -> Network:
    rng = np.random.default_rng(0)
    w, b, v = (rng.standard_normal(s).astype("float32") for s in [(16, 16), (16,), (16, 24)])

    def emit(builder: Any, x: Any, y: Any) -> Any:
        dense = builder.emit(relax.op.matmul(x, relax.const(w)))
        hidden = builder.emit(relax.op.nn.relu(relax.op.add(dense, relax.const(b))))
        out = builder.emit(relax.op.add(relax.op.matmul(hidden, relax.const(v)), y))
        return builder.emit(relax.Tuple([hidden, out]))

    library = _build([("x", (2, 16), "float32"), ("y", (2, 24), "float32")], emit, **fields)
    return Network(library, w, b, v)


@pytest.fixture(scope="session")
def build() -> Callable[..., FactoryModule]:
    """`build(inputs, emit, **metadata fields)` compiles a library."""
    return _build


@pytest.fixture(scope="session")
def build_network() -> Callable[..., Network]:
    """`build_network(**metadata fields)` compiles the network."""
    return _network


@pytest.fixture(scope="session")
def network() -> Network:
    return _network()
