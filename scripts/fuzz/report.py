"""Findings on disk: the model, its inputs, and the text of a test."""

from __future__ import annotations

import json
import pathlib
import re
from dataclasses import asdict, dataclass

import numpy as np
import onnx
import onnx.printer

from .attempt import Event
from .evaluate import constants_of
from .minimize import Small

LONGEST = 400
"""Elements of an array that the text of a test spells out."""


@dataclass
class Finding:
    """A failure, made small.

    Attributes
    ----------
    event : Event
    small : Small
    origin : str
        The command that draws the whole case.
    """

    event: Event
    small: Small
    origin: str

    @property
    def cause(self) -> str:
        """What equal findings have in common."""
        ops = "+".join(node.op_type for node in self.small.model.graph.node)
        what = self.event.what if self.event.kind not in ("wrong", "unjudged") else ""
        dtypes = sorted({str(array.dtype) for array in self.small.feed.values()})
        return f"{self.event.kind}: {ops} {'/'.join(dtypes)} {what}".strip()


def write(finding: Finding, folder: pathlib.Path, number: int) -> pathlib.Path:
    """Write the model, its inputs, the facts and a test to a folder of its own; returns it."""
    ops = "_".join(node.op_type for node in finding.small.model.graph.node)[:60]
    place = folder / f"{number:03d}_{finding.event.kind}_{ops}"
    place.mkdir(parents=True, exist_ok=True)
    onnx.save(finding.small.model, str(place / "model.onnx"))
    with (place / "inputs.npz").open("wb") as file:
        np.savez(file, allow_pickle=False, **dict(finding.small.feed))
    facts = {"origin": finding.origin, "cause": finding.cause, **asdict(finding.event)}
    (place / "finding.json").write_text(json.dumps(facts, indent=1) + "\n")
    (place / "test_case.py").write_text(test_text(finding))
    return place


def read(place: pathlib.Path) -> Small:
    """The case that `write` wrote."""
    with np.load(place / "inputs.npz") as arrays:
        return Small(onnx.load(str(place / "model.onnx")), dict(arrays))


def test_text(finding: Finding) -> str:
    """A test of this case, for the importer's tests and their fixture `runs_as_onnxruntime`."""
    small, config = finding.small, finding.event.config
    model = onnx.ModelProto()
    model.CopyFrom(small.model)
    weights = constants_of(model)
    del model.graph.initializer[:]
    name = "_".join(node.op_type.lower() for node in model.graph.node)
    arguments = f"opt_level={config.level}, target={config.target!r}" if config else ""
    return "\n".join(
        [
            f"# {finding.event.kind}: {finding.event.what}",
            f"# {finding.origin}",
            f"def test_{re.sub(r'[^a-z0-9_]', '', name)}_agrees(runs_as_onnxruntime):",
            '    text = """',
            onnx.printer.to_text(model).replace("\\", "\\\\"),
            '"""',
            f"    weights = {_arrays(weights)}",
            f"    feeds = {_arrays(small.feed)}",
            f"    runs_as_onnxruntime(text, weights, feeds, {arguments})",
            "",
        ]
    )


def _arrays(arrays: object) -> str:
    assert isinstance(arrays, dict)
    return "{" + ", ".join(f"{name!r}: {_array(a)}" for name, a in arrays.items()) + "}"


def _array(array: np.ndarray) -> str:
    if array.size > LONGEST:
        return f"np.zeros({array.shape}, {str(array.dtype)!r})  # of inputs.npz"
    text = re.sub(r"\b(nan|inf)\b", r"np.\1", repr(array.tolist()))
    shape = f".reshape({array.shape})" if array.size == 0 else ""
    return f"np.array({text}, {str(array.dtype)!r}){shape}"
