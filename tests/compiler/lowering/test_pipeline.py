"""The steps of a build are those that the documents show, and switches leave them out."""

from __future__ import annotations

from pathlib import Path

import pytest
import tvm
from tvm import relax

from compiler.lowering import pipeline
from compiler.lowering.build import build
from compiler.target import parse

INTERNALS = Path(__file__).parents[3] / "docs" / "internals.md"


def picture():
    """The declared steps as the document shows them."""
    lines = []
    for step in pipeline.STEPS:
        needs = [f"{switch.name} {switch.opt_level}" for switch in step.needs]
        asks = [f"({switch.name} {switch.opt_level})" for switch in step.asks]
        lines.append(f"{step.name:<28}{', '.join([*needs, *asks])}".rstrip())
    return lines


def test_the_document_shows_the_declared_steps():
    text = INTERNALS.read_text(encoding="utf-8")
    blocks = [block.strip("\n").splitlines() for block in text.split("```")[1::2]]
    assert ["text", *picture()] in blocks


def relu():
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.nn.relu(x))
        builder.emit_func_output(out)
    return builder.get()


@pytest.mark.parametrize("step", [step for step in pipeline.STEPS if step.needs])
def test_a_step_is_left_out_where_a_switch_that_it_needs_is_off(step, monkeypatch):
    monkeypatch.setenv("BATON_KERNEL_CACHE_BYTES", "0")

    def taken(**options):
        with tvm.transform.PassContext(opt_level=3, **options):
            return build(relu(), parse("llvm")).report.seconds

    assert step.name in taken()
    assert step.name not in taken(disabled_pass=[step.needs[0].name])
