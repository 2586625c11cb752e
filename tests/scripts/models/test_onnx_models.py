"""The synthetic networks, built by Baton and compared with onnxruntime."""

import numpy as np
import onnx
import pytest
import tvm

from compiler import relay
from compiler.runtime import graph_executor
from schedules.x86.machine.host import host_name
from scripts.models import onnx_models
from tests.sweep import FACTOR

TARGET = f"llvm -mcpu={host_name()}"


@pytest.mark.parametrize("name,batch", [("shufflenet", 2), ("yolo", 1)][: 1 if FACTOR == 1 else 2])
def test_a_network_is_built_and_agrees_with_onnxruntime(name, batch):
    onnxruntime = pytest.importorskip("onnxruntime")
    model = onnx_models.MODELS[name](batch)
    mod, params = relay.frontend.from_onnx(model, freeze_params=False)
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(mod, TARGET, params=params)
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    data = np.random.default_rng(0).standard_normal(shape).astype("float32")
    module.run(input=data)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for index, expected in enumerate(session.run(None, {"input": data})):
        assert expected.shape[0] == batch
        error = np.abs(module.get_output(index).numpy() - expected).max()
        assert error < 1e-4 * np.abs(expected).max()


def test_files_are_named_for_the_network_and_its_batch(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["onnx_models.py", str(tmp_path), "mlp", "--batch", "8"])
    onnx_models.main()
    path = tmp_path / "mlp_b8.onnx"
    assert capsys.readouterr().out.split() == [str(path)]
    assert onnx.load(path).graph.input[0].type.tensor_type.shape.dim[0].dim_value == 8


def test_a_bundled_model_of_another_batch_computes_each_image():
    onnxruntime = pytest.importorskip("onnxruntime")
    model = onnx_models.bundled("squeezenet1_1", 2)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (image,) = session.get_inputs()
    assert image.shape == [2, 3, 224, 224]
    x = np.random.default_rng(0).standard_normal(image.shape).astype("float32")
    (both,) = session.run(None, {image.name: x})
    (swapped,) = session.run(None, {image.name: x[::-1].copy()})
    np.testing.assert_allclose(both, swapped[::-1], rtol=1e-4, atol=1e-6)
    assert np.abs(both[0] - both[1]).max() > 1e-3 * np.abs(both).max()
