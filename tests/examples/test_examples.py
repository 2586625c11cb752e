"""The example scripts run, and what they compare is equal."""

from __future__ import annotations

import contextlib
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples" / "gluon").glob("*.py"))


def test_there_are_five_examples_of_blocks():
    assert len(EXAMPLES) == 5


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_print_that_nothing_differs(path, capsys):
    from compiler import partition

    before = set(partition.list_partitioners())
    try:
        runpy.run_path(str(path), run_name="__main__")
    finally:
        for name in set(partition.list_partitioners()) - before:
            partition.unregister(name)
    differences = re.findall(r"largest difference: (\S+)", capsys.readouterr().out)
    assert differences and all(float(each) < 1e-5 for each in differences)


def test_texts_are_generated_with_one_library(tmp_path, capsys, monkeypatch):
    path = str(tmp_path / "llama.onnx")
    for script, *arguments in (
        (
            "scripts/models/decoders.py",
            "llama",
            path,
            "--layers",
            "1",
            "--width",
            "32",
            "--heads",
            "2",
        ),
        ("examples/generate.py", path, "--prompt", "3,14,15", "--tokens", "5"),
    ):
        monkeypatch.setattr("sys.argv", [script, *arguments])
        with contextlib.suppress(SystemExit):
            runpy.run_path(str(ROOT / script), run_name="__main__")
    tokens = capsys.readouterr().out.split()
    assert len(tokens) == 5 and all(0 <= int(token) < 256 for token in tokens)
