"""Messages of bad command lines, as `bad_inputs.txt` lists them.

That file is meant to be read: a change of it is a change of what users see. To write it anew, run
this file as a program: `python -m tests.compiler.cli.test_bad_inputs`.
"""

from __future__ import annotations

import re
import shlex
import tempfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

from compiler.cli.app import app

GOLDEN = Path(__file__).with_name("bad_inputs.txt")


def write_files(folder: Path) -> None:
    """The files that the commands of the list name."""
    node = helper.make_node("Relu", ["data"], ["scores"])
    unknown = helper.make_node("Frobnicate", ["data"], ["scores"], domain="com.example")
    data, batch, scores = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("data", [1, 4]), ("data", ["batch", 4]), ("scores", None))
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    for name, made, entry in (
        ("net.onnx", node, data),
        ("open.onnx", node, batch),
        ("unknown.onnx", unknown, data),
    ):
        graph = helper.make_graph([made], "g", [entry], [scores])
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), folder / name)
    (folder / "cut.onnx").write_bytes((folder / "net.onnx").read_bytes()[:40])
    (folder / "empty.onnx").touch()
    (folder / "page.onnx").write_text("<!DOCTYPE html><title>404</title>")
    (folder / "pointer.onnx").write_text("version https://git-lfs.github.com/spec/v1\n")
    (folder / "weights.onnx").write_bytes(b"PK\x03\x04" + bytes(30))
    (folder / "text.so").write_text("no library\n")
    (folder / "page.so").write_text("<html></html>")
    (folder / "folder").mkdir()
    np.save(folder / "small.npy", np.zeros((1, 3), "float32"))
    np.save(folder / "words.npy", np.zeros((1, 4), "complex64"))
    (folder / "text.npy").write_text("1 2 3\n")
    (folder / "plugin.py").write_text("import no_such_package\n")
    (folder / "bad.log").write_text("this is no record\n")
    (folder / "net-symbol.json").write_text("{")
    (folder / "net.relay").write_text("def @main(%x: Tensor[(1, 4), float32]) { nn.rel(%x) }\n")


def cases() -> list[tuple[str, str]]:
    """Commands of the list, and the messages there."""
    blocks = GOLDEN.read_text(encoding="utf-8").split("\n\n")
    return [tuple(block.strip().split("\n", 1)) for block in blocks if block.startswith("$")]  # type: ignore[misc]


def message(command: str, folder: Path) -> str:
    """The exit code and the message, with its lines joined, and paths of the folder as `./`."""
    words = shlex.split(command.removeprefix("$ baton "))
    result = CliRunner().invoke(app, ["-q", *words], env={"COLUMNS": "80"})
    assert result.stdout == "", command
    said = result.stderr
    if "─ Error ─" in said:
        rows = re.findall(r"^│ (.*?) *│$", said, re.M)
        said = "usage: " + " ".join(rows)
    text = " ".join(said.split()).replace(f"{folder.resolve()}/", "./")
    return f"{result.exit_code} {text}"


@pytest.fixture
def files(tmp_path, monkeypatch):
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_there_are_forty():
    assert len({command for command, _ in cases()}) == len(cases()) >= 40


@pytest.mark.parametrize(("command", "expected"), cases())
def test_a_bad_input_gets_its_message(files, command, expected):
    assert message(command, files) == expected


if __name__ == "__main__":
    import os

    with tempfile.TemporaryDirectory() as name:
        write_files(Path(name))
        os.chdir(name)
        lines = [f"{command}\n{message(command, Path(name))}\n" for command, _ in cases()]
    GOLDEN.write_text("\n".join(lines), encoding="utf-8")
