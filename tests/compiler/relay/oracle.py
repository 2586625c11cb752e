"""Programs that the last TVM with Relay recorded, for the tests of its readers and passes."""

from __future__ import annotations

import functools
import gzip
import json
import pathlib
from typing import Any

import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "oracle" / "relay"


@functools.lru_cache(maxsize=1)
def programs() -> list[dict[str, Any]]:
    """id, text, json (or absent), inputs, outputs and how to compare them."""
    arrays = np.load(FOLDER / "programs.npz")
    found = []
    for line in read("programs.jsonl.gz").splitlines():
        case = json.loads(line)
        case["inputs"] = [arrays[f"{case['id']}_in{i}"] for i in range(len(case["params"]))]
        case["expected"] = [arrays[f"{case['id']}_out{i}"] for i in range(len(case["outputs"]))]
        found.append(case)
    return found


def read(name: str) -> str:
    return gzip.decompress((FOLDER / name).read_bytes()).decode()


LOSES_NAN = {"maximum", "minimum"}
"""Operators that gave a number for NaN in Relay, where they keep it as IEEE and ONNX say."""


def _has_nan(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f" and bool(np.isnan(value).any())


def assert_same(case: dict[str, Any], got: list[np.ndarray]) -> None:
    """The oracle's rule of comparison."""
    assert len(got) == len(case["expected"])
    for mine, wanted, output in zip(got, case["expected"], case["outputs"]):
        assert mine.shape == wanted.shape
        if LOSES_NAN & set(case["ops"]) and any(map(_has_nan, case["inputs"])):
            mine = np.where(np.isnan(mine), wanted, mine)
        if wanted.dtype.kind == "f":
            finite = np.isfinite(wanted)
            scale = max(1.0, float(np.abs(wanted[finite]).max())) if finite.any() else 1.0
            rule = output["compare"]
            np.testing.assert_allclose(
                mine.astype("float64"),
                wanted.astype("float64"),
                rtol=rule["rtol"],
                atol=rule["atol"] * scale,
            )
        elif wanted.dtype.kind == "b":
            np.testing.assert_array_equal(mine, wanted)
        else:
            allowed = output["compare"]["int_atol"]
            assert np.abs(mine.astype("int64") - wanted.astype("int64")).max(initial=0) <= allowed


def run(mod: Any, inputs: list[Any]) -> list[np.ndarray]:
    """Outputs of `main`, flattened."""
    from compiler import relay

    return flat(relay.create_executor("graph", mod).evaluate()(*inputs))


def flat(value: Any) -> list[np.ndarray]:
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in flat(item)]
    return [value.numpy()]
