"""Everything that a reader can copy from README.md and docs/ runs.

A page's Python blocks run in order in one namespace, in a folder with the files that they read; one
that begins with the name of a file, `# mine.py`, is saved under it instead. What a page takes for
granted is made by `given`, or by blocks that are not shown: `<!--- invisible-code-block: python`.
Command lines of `baton` are run in the same folder, in the order of the page; those that `not_run`
names are parsed. Programs of `scripts/` and targets of `make` must exist.

The pages that a user reads first run in `make journey`, each in a fresh process of an environment
with the wheel. Here their code must parse.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import unittest
from typing import Any

import numpy as np
import onnx
import onnx.helper
import pytest
import tvm
import typer.main
from sybil import Document, Example
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser, SkipParser
from typer.testing import CliRunner

from compiler import backends, legacy, relay
from compiler.cli.app import app
from schedules import strategy
from schedules.anchor import ANCHOR_RULES
from scripts.release import journey
from scripts.release.run_page import blocks

from .not_run import BLOCKS, COMMANDS, PAGES_ELSEWHERE

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
OF_THE_JOURNEY = [page for page in PAGES if journey.has_page(page)]
BUILT_IN = ("cublaslt", "cuda", "cudnn", "default", "llvm", "onnxruntime")
"""Partitioners that a reader has, whatever other tests registered."""
LANGUAGES = ("python", "sh", "cmake", "cpp", "text", "")
"""Of blocks: the first two are run, the others are not Baton's to run."""
LOGS = ("old.log", "old1.log", "old2.log", "tuned.log", "tuned.log.best")
RECORD = """{"input": ["llvm -keys=cpu", "dense_nopack.x86", [["TENSOR", [1, 8], "float32"], \
["TENSOR", [10, 8], "float32"], null, "float32"], {}], "config": {"index": 0, "code_hash": null, \
"entity": [["tile_y", "sp", [-1, 1]], ["tile_x", "sp", [-1, 5]], ["tile_k", "sp", [-1, 8]]]}, \
"result": [[1e-6], 0, 1.0, 1.0], "version": 0.2, "tvm_version": "0.18.0"}
"""
"""Of the network's dense layer."""
BACKEND = """
import json
from compiler.partition import Strategy, register


def claim(graph_json, ids, options):
    for index, node in enumerate(json.loads(graph_json)["nodes"]):
        if node["op"] in ("exp", "nn.dense"):
            ids[index] = -1


register("my_backend", Strategy("by_name", claim))
"""


def network() -> onnx.ModelProto:
    """A convolution, an exponential and a dense layer over `data`; the result is `scores`."""
    rng = np.random.default_rng(0)
    weights = {
        "conv": rng.standard_normal((8, 3, 3, 3)).astype("float32"),
        "dense": rng.standard_normal((10, 8)).astype("float32"),
    }
    nodes = [
        onnx.helper.make_node("Conv", ["data", "conv"], ["c"], strides=[8, 8]),
        onnx.helper.make_node("Relu", ["c"], ["r"]),
        onnx.helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        onnx.helper.make_node("Flatten", ["p"], ["f"]),
        onnx.helper.make_node("Exp", ["f"], ["e"]),
        onnx.helper.make_node("Gemm", ["e", "dense"], ["scores"], transB=1),
    ]
    tensor, real = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        nodes,
        "network",
        [tensor("data", real, (1, 3, 224, 224))],
        [tensor("scores", real, (1, 10))],
        [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])


def given() -> dict[str, Any]:
    """What pages take for granted."""
    mod, params = relay.frontend.from_onnx("model.onnx", freeze_params=False)
    return {
        "__name__": "__main__",
        "has_cross_compiler": shutil.which("aarch64-linux-gnu-g++") is not None,
        "has_gpu": tvm.cuda().exist,
        "has_nvcc": shutil.which("nvcc") is not None,
        "has_torch": importlib.util.find_spec("torch") is not None,
        "image": np.zeros((1, 3, 224, 224), "float32"),
        "mod": mod,
        "params": params,
        "relay": relay,
        "target": "llvm",
    }


def run_python(example: Example) -> None:
    """Run a block, or save it."""
    name = re.match(r"# (\w+\.py)\n", example.parsed)
    if name:
        pathlib.Path(name[1]).write_text(example.parsed)
    else:
        PythonEvaluator()(example)


def command_lines(text: str) -> list[list[str]]:
    """The words of each line of a shell's block, without comments and optional arguments."""
    text = text.replace("\\\n", " ")
    lines = (re.sub(r"(^|\s)#.*", "", each).strip() for each in text.splitlines())
    return [shlex.split(re.sub(r"\[.*?\]", "", line).removeprefix("$ ")) for line in lines if line]


def run_commands(example: Example) -> None:
    """Run the command lines of a block, or look for what they start."""
    for words in command_lines(str(example.parsed)):
        line = shlex.join(words)
        if words[0] == "baton":
            run_baton(words[1:], any(line.startswith(each) for each in COMMANDS))
        elif words[0] == "make" and len(words) > 1:
            assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.M), line
        elif words[:2] == ["python", "-m"] and words[2].startswith("scripts."):
            assert (ROOT / words[2].replace(".", "/")).with_suffix(".py").is_file(), line
        elif words[0] == "python" and words[1].startswith("examples/"):
            assert (ROOT / words[1]).is_file(), line


def run_baton(words: list[str], only_parse: bool) -> None:
    """Raise if the command fails; if it is only parsed, if one of its words does not exist."""
    changes_imports = words[0] == "tvmc" or (words[0] == "run" and words[1].endswith(".py"))
    if changes_imports and not only_parse:
        here = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, "-m", "compiler", *words], env=here, check=True)
        return
    if not only_parse:
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, f"baton {shlex.join(words)}: {result.stderr}"
        return
    command: Any = typer.main.get_command(app)
    context = command.make_context("baton", list(words))
    while hasattr(command, "resolve_command"):
        rest = [*context._protected_args, *context.args]
        name, command, rest = command.resolve_command(context, rest)
        context = command.make_context(name, rest, parent=context)


PARSERS = (
    CodeBlockParser("python", run_python),
    CodeBlockParser("sh", run_commands),
    SkipParser(),
)


@pytest.mark.parametrize("page", OF_THE_JOURNEY, ids=lambda page: page.name)
def test_pages_of_the_journey_parse(page: pathlib.Path) -> None:
    for language, text in blocks(page.read_text(encoding="utf-8")):
        if language == "python":
            ast.parse(text)
            continue
        for words in command_lines(text):
            if words[0] == "baton":
                run_baton(words[1:], only_parse=True)


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page not in OF_THE_JOURNEY],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_what_a_page_shows_runs(
    page: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if page.name in PAGES_ELSEWHERE:
        pytest.skip(f"its code is run by {PAGES_ELSEWHERE[page.name]}")
    for name in ("model.onnx", "resnet18.onnx"):
        onnx.save(network(), tmp_path / name)
    for name in LOGS:
        (tmp_path / name).write_text(RECORD)
    (tmp_path / "tuned.json").touch()  # no record of any kernel
    (tmp_path / "samples").mkdir()
    image = np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype("float32")
    np.savez(tmp_path / "samples" / "0.npz", data=image)
    (tmp_path / "my_backend.py").write_text(BACKEND)
    (tmp_path / "old_script.py").write_text("from tvm import autotvm, relay\n")
    monkeypatch.setenv("TVM_NUM_THREADS", os.environ.get("TVM_NUM_THREADS", "1"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    document = Document.parse(str(page), *PARSERS)
    document.namespace.update(given())
    partitioners = backends.registered()
    backends.restore({name: partitioners[name] for name in BUILT_IN})
    schedules = {key: [*known] for key, known in strategy._STRATEGIES.items()}
    rules, modules = {*ANCHOR_RULES}, {*sys.modules}
    try:
        for example in document.examples():
            with contextlib.suppress(unittest.SkipTest):  # of a block with a reason
                example.evaluate()
    finally:
        legacy.uninstall()
        backends.restore(partitioners)
        strategy._STRATEGIES.update(schedules)
        for name in ANCHOR_RULES.keys() - rules:
            del ANCHOR_RULES[name]
        for name in sys.modules.keys() - modules:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
                del sys.modules[name]


def test_what_is_not_run_is_in_one_table() -> None:
    blocks, commands = set(), []
    for page in PAGES:
        text = page.read_text()
        for skipped in re.findall(r"<!--- skip: (.*?) ?-->", text):
            reason = re.search(r'"([^"]+)"\)?$', skipped)
            assert reason, f"{page.name}: skip: {skipped} gives no reason"
            blocks.add((page.relative_to(ROOT).as_posix(), reason[1]))
        for language, block in re.findall(r"^ *```(\w*)\n(.*?)^ *```", text, re.M | re.S):
            assert language in LANGUAGES, f"{page.name}: a block of {language!r}"
            if language == "sh":
                commands += [shlex.join(words) for words in command_lines(block)]
            else:
                assert not re.search(r"^(\$ )?baton ", block, re.M), f"{page.name}: {block}"
    assert blocks == BLOCKS
    for start, (reason, test) in COMMANDS.items():
        assert any(each.startswith(start) for each in commands), f"no page has {start!r}"
        assert reason and (ROOT / "tests" / test).is_file(), start
    for page_name, test in PAGES_ELSEWHERE.items():
        assert any(page.name == page_name for page in PAGES)
        assert list((ROOT / "tests").rglob(test)), test
