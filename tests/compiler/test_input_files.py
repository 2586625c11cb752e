"""Every reader of input files rejects what is not a regular file, with its own error."""

from __future__ import annotations

import os

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from compiler import autotvm, ort, relay
from compiler.auto_scheduler import ApplyHistoryBest
from compiler.cli.models import read_inputs
from compiler.cli.tvmc.compiler import history
from compiler.cli.tvmc.config_options import read_config
from compiler.cli.tvmc.main import _inputs
from compiler.cli.tvmc.model import TVMCModel, TVMCPackage
from compiler.errors import BatonError, FrontendError
from compiler.mxnet.array import safetensors
from compiler.mxnet.symbol import Symbol, load_params
from compiler.records.autotvm.record import read_lines
from compiler.runtime import load_module

READERS = {
    "onnx": lambda path: relay.frontend.from_onnx(path),
    "onnx session": ort.InferenceSession,
    "symbol": Symbol.load,
    "params": load_params,
    "safetensors": safetensors.read,
    "library": load_module,
    "npy": lambda path: read_inputs({"x": path}),
    "npz": lambda path: _inputs(str(path)),
    "autotvm log": lambda path: autotvm.apply_history_best(str(path)),
    "lines of a log": lambda path: list(read_lines(path)),
    "auto_scheduler log": lambda path: ApplyHistoryBest(str(path)),
    "log of either tuner": lambda path: history(str(path)),
    "package": lambda path: TVMCPackage(str(path)),
    "model": lambda path: TVMCModel(model_path=str(path)),
    "flags": lambda path: read_config(str(path)),
}


@pytest.mark.parametrize("kind", ["FIFO", "device", "directory"])
@pytest.mark.parametrize("reader", READERS.values(), ids=READERS.keys())
def test_what_is_no_regular_file_is_an_error_without_waiting(tmp_path, kind, reader):
    path = tmp_path / "file.json"
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    with pytest.raises(BatonError, match=kind):
        reader(path)


def model_with_external_weight(folder, **entries):
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4])
    weight.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "weights", **entries}.items():
        weight.external_data.add(key=key, value=str(value))
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "graph",
        [value("x", TensorProto.FLOAT, [4])],
        [value("y", TensorProto.FLOAT, [4])],
        [weight],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), folder / "net.onnx")
    return folder / "net.onnx"


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ({"length": 2**60}, f"declares {2**60} bytes at offset 0, and .* has 16"),
        ({"offset": 8, "length": 16}, "declares 16 bytes at offset 8"),
        ({"offset": -8}, "at offset -8"),
        ({"length": "many"}, "weight 'w'"),
    ],
)
def test_external_weights_beyond_their_file_are_an_error(tmp_path, entries, reason):
    np.zeros(4, "float32").tofile(tmp_path / "weights")
    with pytest.raises(FrontendError, match=reason):
        relay.frontend.from_onnx(model_with_external_weight(tmp_path, **entries))


def test_external_weights_in_a_fifo_are_an_error_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "weights")
    with pytest.raises(FrontendError, match="it is a FIFO"):
        relay.frontend.from_onnx(model_with_external_weight(tmp_path, length=16))
