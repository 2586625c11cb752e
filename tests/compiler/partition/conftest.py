"""Partitioners for one test, and modules that are run on stock TVM."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from compiler import relay
from compiler.partition import Strategy, list_partitioners, register, unregister


@pytest.fixture(autouse=True)
def _clean_registry() -> Iterator[None]:
    before = set(list_partitioners())
    yield
    for name in set(list_partitioners()) - before:
        unregister(name)


def claim(*operators: str) -> Callable[[str, list[int], dict[str, str]], None]:
    """A `supported_ops` that marks operators by name, all of them without names."""

    def supported_ops(graph_json: str, ids: list[int], options: dict[str, str]) -> None:
        for index, node in enumerate(json.loads(graph_json)["nodes"]):
            if node["op"] in operators or not operators:
                ids[index] = -1

    return supported_ops


@pytest.fixture
def claiming() -> Callable[..., str]:
    """Registers a partitioner of one strategy that claims operators; returns its name."""

    def make(*operators: str, name: str = "test", **strategy: Any) -> str:
        register(name, Strategy("by_name", claim(*operators), **strategy))
        return name

    return make


def execute(mod: tvm.IRModule, *inputs: np.ndarray) -> list[np.ndarray]:
    """Build a module with TVM's own pipeline and run its main; outputs flattened."""
    relax.analysis.well_formed(mod)
    machine = relax.VirtualMachine(tvm.compile(relay.to_relax(mod), target="llvm"), tvm.cpu())
    return flat(machine["main"](*[tvm.runtime.tensor(value) for value in inputs]))


def flat(value: Any) -> list[np.ndarray]:
    if isinstance(value, tvm.runtime.Tensor):
        return [value.numpy()]
    return [leaf for part in value for leaf in flat(part)]


def random(shape: Sequence[int], seed: int = 0) -> np.ndarray:
    """float32 values in [0.5, 1.5), so that every operator in the tests is well-behaved."""
    return (np.random.default_rng(seed).random(shape) + 0.5).astype("float32")
