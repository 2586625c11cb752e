from __future__ import annotations

import numpy as np
import onnx
import pytest

from compiler.cli import models
from compiler.cli.app import app
from compiler.errors import ExportError, FrontendError, InputError
from compiler.runtime import TensorInfo


def test_a_path_is_the_model_itself(model):
    assert models.find_model(str(model)) == model


def test_a_bundled_model_gets_weights_once_outside_of_the_repository(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = models.find_model("squeezenet1_1")
    assert tmp_path in path.parents
    assert path.name == "squeezenet1_1.onnx"
    onnx.checker.check_model(str(path))
    first = path.stat().st_mtime_ns
    assert models.find_model("squeezenet1_1") == path
    assert path.stat().st_mtime_ns == first
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_an_unknown_name_lists_the_bundled_models():
    with pytest.raises(FrontendError, match=r"nosuchmodel.*resnet18_v1"):
        models.find_model("nosuchmodel")


def test_a_bundled_model_is_written_where_the_user_wants_it(cli, tmp_path):
    assert cli.invoke(app, ["models"]).stdout.split() == models.bundled()
    path = tmp_path / "here.onnx"
    result = cli.invoke(app, ["models", "squeezenet1_1", "-o", str(path)])
    assert "random weights" in result.stdout
    assert path.read_bytes() == models.find_model("squeezenet1_1").read_bytes()


def test_a_model_that_cannot_be_written_is_an_error(cli, tmp_path):
    (tmp_path / "file").touch()
    below_a_file = str(tmp_path / "file" / "here.onnx")
    result = cli.invoke(app, ["models", "squeezenet1_1", "-o", below_a_file])
    assert result.exit_code == 1
    assert "can't write 'squeezenet1_1' to" in result.stderr
    result = cli.invoke(app, ["models", "resnet"])
    assert result.exit_code == 1
    assert "not a bundled model" in result.stderr


def test_a_cache_that_cannot_be_written_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(ExportError, match="XDG_CACHE_HOME"):
        models.find_model("squeezenet1_1")


def test_random_inputs_fit_their_description():
    infos = [
        TensorInfo("data", (2, 3), "float32"),
        TensorInfo("input_ids", (1, 64), "int64"),
        TensorInfo("attention_mask", (1, 64), "int64"),
        TensorInfo("token_type_ids", (1, 64), "int32"),
        TensorInfo("flag", (4,), "bool"),
    ]
    values = models.random_inputs(infos, seed=3)
    for info in infos:
        assert values[info.name].shape == info.shape
        assert str(values[info.name].dtype) == info.dtype
    assert (values["attention_mask"] == 1).all()
    assert set(values["token_type_ids"].flat) == {0, 1}
    assert 1 < values["input_ids"].max() < 1000
    assert values["data"].std() > 0.1


def test_an_input_of_a_type_that_numpy_lacks_needs_a_value():
    with pytest.raises(InputError, match="x: float5"):
        models.random_inputs([TensorInfo("x", (1,), "float5")])


@pytest.mark.parametrize(
    ("given", "wanted", "expected"),
    [
        ([[1.0, 4.0]], [[1.0, 4.0]], 0.0),
        ([[1.0, 5.0]], [[1.0, -4.0]], 9 / 4),
        ([[1.0], [1.0]], [[1.0], [2.0]], 0.5),
        ([[1.0]], [[1.0, 2.0]], np.inf),
        ([[1.0]], [[1.0], [2.0]], np.inf),
        ([[np.nan]], [[1.0]], np.inf),
        ([[0.0]], [[0.0]], 0.0),
    ],
)
def test_relative_error_is_taken_from_the_largest_magnitude_of_each_output(given, wanted, expected):
    arrays = [[np.array(each, "float32") for each in values] for values in (given, wanted)]
    assert models.relative_error(*arrays) == pytest.approx(expected)
