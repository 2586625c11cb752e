"""Real exported networks, the whole way: import, build, export, load, run, against onnxruntime."""

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm

from compiler import relay
from compiler.models import fill_weights
from compiler.runtime import graph_executor, load_module

NAMES = fill_weights.names()


def example_inputs(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Seeded inputs: noise for images, token numbers, and a mask with some padding."""
    weights = {initializer.name for initializer in model.graph.initializer}
    rng = np.random.default_rng(0)
    inputs = {}
    for value in model.graph.input:
        if value.name in weights:
            continue
        tensor = value.type.tensor_type
        shape = [dim.dim_value for dim in tensor.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if dtype.kind == "f":
            array = rng.standard_normal(shape)
        elif value.name == "mask":
            array = np.arange(shape[-1]) < shape[-1] * 3 // 4
        else:
            array = rng.integers(0, 1000, shape)
        inputs[value.name] = np.broadcast_to(array, shape).astype(dtype)
    return inputs


def test_all_six_models_are_here():
    assert len(NAMES) == 6


@pytest.mark.parametrize("name", NAMES)
def test_model_gives_onnxruntimes_numbers(name, tmp_path):
    model = fill_weights.hydrate(name)
    inputs = example_inputs(model)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    expected = session.run(None, inputs)
    del session

    mod, params = relay.frontend.from_onnx(model)
    del model
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(mod, "llvm", params=params)
    assert not lib.report.unscheduled
    path = tmp_path / f"{name}.so"
    lib.export_library(str(path))
    del lib

    module = graph_executor.GraphModule(load_module(str(path))["default"](tvm.cpu()))
    module.run(**inputs)
    for index, reference in enumerate(expected):
        got = module.get_output(index).numpy()
        assert got.shape == reference.shape
        assert np.abs(got - reference).max() < 1e-4 * np.abs(reference).max()
