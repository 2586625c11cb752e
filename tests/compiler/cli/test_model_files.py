"""Models that are not ONNX files, on the command line."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from compiler.cli.app import app
from compiler.cli.model_files import read_model
from compiler.errors import FrontendError

ORACLE = Path(__file__).resolve().parents[2] / "oracle"


def copied(folder: Path, *names: str) -> Path:
    for name in names:
        shutil.copy(ORACLE / "mxnet" / name, folder)
    return folder / names[0]


@pytest.fixture
def mlp(tmp_path: Path) -> Path:
    """Relay text, saved JSON and weights of one network, as TVM 0.18 wrote them."""
    for packed, name in (("mlp.relay.txt.gz", "mlp.relay"), ("mlp.json.gz", "mlp.json")):
        (tmp_path / name).write_bytes(gzip.decompress((ORACLE / "relay" / packed).read_bytes()))
    shutil.copy(ORACLE / "relay" / "mlp.params", tmp_path)
    return tmp_path


def test_a_symbol_is_partitioned_with_the_weights_beside_it(cli, tmp_path):
    path = copied(tmp_path, "b01_convnet-symbol.json", "b01_convnet-0000.params")
    page = tmp_path / "out.dot"
    arguments = ["--backend", "llvm", "--option", "ops=nn.relu", "--json", "--dot", str(page)]
    result = cli.invoke(app, ["partition", str(path), "--shape", "data=2,3,8,8", *arguments])
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)["subgraphs"]
    assert found and all(set(info["operators"]) == {"nn.relu"} for info in found)
    assert "nn.relu" in page.read_text()


def test_a_symbol_runs_on_the_weights_of_the_epoch_named(cli, tmp_path):
    copied(tmp_path, "b01_convnet-symbol.json", "b01_convnet-0000.params")
    shutil.copy(tmp_path / "b01_convnet-0000.params", tmp_path / "b01_convnet-0007.params")
    with np.load(ORACLE / "mxnet" / "b01_convnet_io.npz") as values:
        given = {key[3:]: values[key] for key in values if key.startswith("in:")}
        wanted = values["out:0"]
    shapes, files = [], []
    for name, value in given.items():
        np.save(tmp_path / f"{name}.npy", value)
        shapes += ["--shape", f"{name}={','.join(map(str, value.shape))}"]
        files += ["--input", f"{name}={tmp_path / name}.npy"]
    run = ["run", str(tmp_path / "b01_convnet-0007.params"), *shapes, *files]
    result = cli.invoke(app, [*run, "--save", str(tmp_path / "out.npz")])
    assert result.exit_code == 0, result.stderr
    with np.load(tmp_path / "out.npz") as outputs:
        np.testing.assert_allclose(outputs[outputs.files[0]], wanted, rtol=1e-4, atol=1e-5)
    with pytest.raises(FrontendError, match=r"several epochs; name one of .*-0000.*-0007"):
        read_model(tmp_path / "b01_convnet-symbol.json", {})


@pytest.mark.parametrize("name", ["mlp.relay", "mlp.json"])
def test_relay_programs_are_partitioned_with_their_weights(cli, mlp, name):
    arguments = ["--backend", "llvm", "--json"]
    result = cli.invoke(app, ["partition", str(mlp / name), *arguments])
    assert result.exit_code == 0, result.stderr
    (found,) = json.loads(result.stdout)["subgraphs"]
    assert "nn.dense" in found["operators"]
    _, params = read_model(mlp / name, {})
    assert params and set(params) <= set(found["input_names"])


def test_a_tflite_file_is_compiled(cli, tmp_path):
    pytest.importorskip("tflite")
    from tests.compiler.relay.frontend.tflite.model_writer import ModelWriter

    writer = ModelWriter()
    data, result = writer.tensor("data", (1, 4, 4, 2)), writer.tensor("result", (1, 2, 2, 2))
    window = {"StrideH": 2, "StrideW": 2, "FilterHeight": 2, "FilterWidth": 2}
    writer.operator("MAX_POOL_2D", [data], [result], "Pool2DOptions", Padding=1, **window)
    path = tmp_path / "pool.tflite"
    path.write_bytes(writer.finish([data], [result]))
    done = cli.invoke(app, ["compile", str(path), "--json"])
    assert done.exit_code == 0, done.stderr
    path.write_bytes(b"no model")
    with pytest.raises(FrontendError, match="not a TFLite model"):
        read_model(path, {})


def test_what_is_no_model_is_refused_by_name(tmp_path, mlp):
    (tmp_path / "alone").mkdir()
    alone = copied(tmp_path / "alone", "b01_convnet-0000.params")
    with pytest.raises(FrontendError, match="needs the symbol"):
        read_model(alone, {})
    with pytest.raises(FrontendError, match="leave out data"):
        read_model(mlp / "mlp.relay", {"data": (1, 2)})
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(FrontendError, match=r"other\.json"):
        read_model(tmp_path / "other.json", {})
    with pytest.raises(FrontendError, match=r"absent\.relay"):
        read_model(tmp_path / "absent.relay", {})
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(FrontendError, match="byte 0 is not UTF-8"):
        read_model(tmp_path / "bytes.txt", {})


def test_a_torchscript_file_is_compiled(cli, tmp_path):
    torch = pytest.importorskip("torch")
    path = tmp_path / "small.pt"
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).eval()
    torch.jit.save(torch.jit.trace(module, torch.zeros(2, 4)), path)
    result = cli.invoke(app, ["compile", str(path), "--json", "--shape", "input=2,4"])
    assert result.exit_code == 0, result.stderr
    (output,) = json.loads(result.stdout)["outputs"]
    assert output.endswith(": float32[2, 3]")
    result = cli.invoke(app, ["compile", str(path)])
    assert result.exit_code == 1
    assert "--shape input=" in result.stderr


@pytest.mark.parametrize(
    "name, message", [("weights.pt", "is not TorchScript"), ("program.pt2", "from_pytorch")]
)
def test_files_of_pytorch_that_hold_pickles_are_refused(cli, tmp_path, name, message):
    torch = pytest.importorskip("torch")
    path = tmp_path / name
    torch.save({"weight": torch.zeros(1)}, path)
    result = cli.invoke(app, ["compile", str(path), "--shape", "x=1"])
    assert result.exit_code == 1
    assert message in result.stderr
