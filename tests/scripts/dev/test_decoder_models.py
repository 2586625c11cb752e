"""Decoders with a cache: one library for the prompt and for each step, beside onnxruntime."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import tvm

from compiler import relay
from compiler.runtime.graph_executor import GraphModule

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "dev" / "decoder_models.py"
spec = importlib.util.spec_from_file_location("decoder_models", SCRIPT)
decoder_models = importlib.util.module_from_spec(spec)
spec.loader.exec_module(decoder_models)

CACHE = ("past_key_0", "past_value_0")


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_prompts_and_steps_of_any_past(kind: str) -> None:
    model = decoder_models.decoder(kind, layers=1, width=32, heads=2, positions=32, vocabulary=64)
    mod, params = relay.frontend.from_onnx(model)
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(mod, "llvm", params=params)
    assert "attention" in [kernel.name for kernel in library.report.kernels]
    module = GraphModule(library["default"](tvm.cpu()))
    assert module.get_output_info()[0]["key_0"] == (1, 2, "past + seq", 16)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    random = np.random.default_rng(0)
    state = {name: np.zeros((1, 2, 0, 16), "float32") for name in CACHE}
    own = {name: tvm.runtime.tensor(value) for name, value in state.items()}
    for count in (5, 1, 3, 2, 7, 1, 1):
        ids = random.integers(0, 64, (1, count))
        expected = session.run(None, {"ids": ids, **state})
        for name, value in own.items():
            module.set_input_zero_copy(name, value)
        module.run(ids=ids)
        for index, each in enumerate(expected):
            got = module.get_output(index).numpy()
            np.testing.assert_allclose(got, each, rtol=1e-4, atol=1e-4)
        state = dict(zip(CACHE, expected[1:], strict=True))
        own = {name: module.get_output(index + 1) for index, name in enumerate(CACHE)}
