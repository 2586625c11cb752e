from __future__ import annotations

import io
import logging
import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import rich.console
import typer

import compiler
from compiler.cli import compile, completions, console
from compiler.cli.app import app
from compiler.cli.console import set_verbosity
from compiler.errors import FrontendError

ROOT = Path(__file__).resolve().parents[3]


def test_every_command_has_help(cli):
    listing = cli.invoke(app, ["--help"]).stdout
    for command in ("compile", "partition", "run", "bench"):
        assert command in listing
        assert cli.invoke(app, [command, "--help"]).exit_code == 0


def commands(group, *above):
    for name, command in group.commands.items():
        yield (*above, name), command
        yield from commands(command, *above, name) if hasattr(command, "commands") else ()


def test_help_texts_are_sentences_of_80_columns(cli):
    found = dict(commands(typer.main.get_command(app)))
    assert len(found) >= 18
    for words, command in found.items():
        help = " ".join((command.help or "").split())
        assert help[:1].isupper() and help.endswith((".", ":")), (words, help)
        for parameter in command.params:
            assert parameter.help[:1].isupper(), (words, parameter.name)
            assert parameter.help.endswith("."), (words, parameter.name, parameter.help)
            assert not parameter.help.startswith("Of "), (words, parameter.name)
        shown = cli.invoke(app, [*words, "--help"], env={"COLUMNS": "80"}).stdout
        assert words[0] == "tvmc" or "Usage: " in shown
        assert "<bool>" not in shown, words
        assert words[0] == "tvmc" or "…" not in shown, words  # a name that is cut off
        assert max(map(len, shown.splitlines()), default=0) <= 80, words


def test_commands_are_listed_in_groups(cli):
    shown = cli.invoke(app, ["--help"], env={"COLUMNS": "80"}).stdout
    titles = re.findall("╭─ (.*?) ─", shown)
    assert titles == [
        *("Options", "Build", "Run", "Measure", "Tune"),
        *("Extend Baton in C++", "This machine", "Old TVM"),
    ]


@pytest.mark.parametrize(
    ("complete", "typed", "offered"),
    [
        (completions.precisions, "bf", ["bf16"]),
        (completions.precisions, "default,f1", ["default,f16"]),
        (completions.peers, "openvino,", ["openvino,onnxruntime", "openvino,relax"]),
        (completions.calibrations, "k", ["kl"]),
        (completions.models, "squeezenet1", ["squeezenet1_1"]),
        (completions.models, "mod", ["model[1].onnx", "models/"]),
    ],
)
def test_names_are_completed(complete, typed, offered, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model[1].onnx").touch()
    (tmp_path / "models").mkdir()
    assert complete(typed) == offered


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--precision", "bf61"], "did you mean 'bf16'?"),
        (["--calibration", "kll"], "did you mean 'kl'?"),
        (["--weight-bits", "4"], "greater than or equal to 7"),
    ],
)
def test_values_of_options_are_checked_before_any_work(cli, words, said):
    result = cli.invoke(app, ["compile", "absent.onnx", *words], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert said in result.stderr


def test_the_command_line_is_read_without_importing_tvm_or_onnx():
    program = (
        "import sys, compiler.cli.app; "
        "print([m for m in ('tvm', 'onnx', 'numpy', 'onnxruntime') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_an_error_of_baton_is_one_line_on_stderr_and_exit_code_1(cli, tmp_path):
    wrong = tmp_path / "wrong.onnx"
    wrong.write_bytes(b"\x09not a model")
    result = cli.invoke(app, ["compile", str(wrong), "--json"])
    assert result.exit_code == 1
    assert result.stdout == ""
    lines = [line for line in result.stderr.splitlines() if line.startswith("baton: error: ")]
    assert len(lines) == 1
    assert "wrong.onnx" in lines[0]
    assert "Traceback" not in result.stderr


def test_debug_lets_the_exception_through(cli, tmp_path):
    result = cli.invoke(app, ["compile", str(tmp_path / "absent.onnx"), "--debug"])
    assert isinstance(result.exception, FrontendError)


@pytest.mark.parametrize(
    "arguments",
    [
        ["compile", "m.onnx", "--shape", "data=1,,x"],
        ["compile", "m.onnx", "--shape", "1,3"],
        ["compile", "m.onnx", "--shape", "data=1", "--shape", "data=2"],
        ["compile", "m.onnx", "--opt-level", "9"],
        ["compile"],
        ["partition", "m.onnx", "--backend", "b", "--option", "novalue"],
        ["partition", "m.onnx"],
        ["compile", "m.onnx", "--backend", "b", "--placement", "best"],
        ["run", "m.so", "--input", "image.npy"],
        ["bench", "m.onnx", "--pin", "all"],
        ["bench", "m.onnx", "--pin", "0-99999"],
        ["bench", "m.onnx", "--threads", "0"],
    ],
)
def test_a_malformed_command_line_is_exit_code_2(cli, arguments):
    result = cli.invoke(app, arguments)
    assert result.exit_code == 2
    assert result.stdout == ""


def test_the_version_is_told(cli):
    shown = cli.invoke(app, ["--version"]).stdout
    assert compiler.__version__ in shown
    assert "TVM 0.27" in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-o", "absent/net.so"], "'absent' is not a folder"),
        (["-o", "net.dll"], "the suffix '.dll'"),
        (["--disable-pass", "Winograt"], "near to it: Winograd"),
        (["--placement", "fastest"], "name some with --backend"),
    ],
)
def test_options_are_checked_before_the_build(cli, model, words, said):
    result = cli.invoke(app, ["compile", str(model), *words])
    assert result.exit_code == 1
    assert said in result.stderr
    assert "build" not in result.stderr


def test_a_script_that_is_missing_is_one_line():
    done = subprocess.run(
        [sys.executable, "-c", "from compiler.cli import main; main()", "run", "absent.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr == "baton: error: there is no script 'absent.py'\n"


def test_packages_list_what_loads_on_use():
    from compiler import relay, runtime

    assert {"build", "frontend", "nn", "var"} <= set(dir(relay))
    assert "load_module" in dir(runtime)
    assert (Path(compiler.__file__).parent / "py.typed").is_file()


def test_quiet_and_verbose_choose_what_comes_on_stderr(cli, model):
    command = ["compile", str(model), "--opt-level", "0"]
    assert "import" in cli.invoke(app, command).stderr
    assert cli.invoke(app, ["--quiet", *command]).stderr == ""
    assert cli.invoke(app, ["-q", "compile", "absent.onnx"]).stderr.startswith("baton: error")
    assert cli.invoke(app, ["-vv", "include-dir"]).exit_code == 0


def test_every_message_follows_the_verbosity():
    calls = re.compile(r"getLogger\((?:f?\"([\w.]*)|(\w+)\))")
    named = {
        first or second
        for folder in ("compiler", "schedules")
        for path in (ROOT / folder).rglob("*.py")
        for first, second in calls.findall(path.read_text(encoding="utf-8"))
    }
    # `name` is a parameter, which callers pass; MetaSchedule's messages are TVM's.
    others = {each for each in named if each != "baton" and not each.startswith("baton.")}
    assert others == {"name", "tvm.s_tir.meta_schedule"}
    try:
        set_verbosity(1)
        assert logging.getLogger("baton.lowering").isEnabledFor(logging.INFO)
        set_verbosity(-1)
        assert not logging.getLogger("baton.lowering").isEnabledFor(logging.WARNING)
    finally:
        set_verbosity(0)


def test_shells_get_completion(cli, monkeypatch):
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    result = cli.invoke(app, ["--show-completion", "bash"])
    assert result.exit_code == 0
    assert "complete" in result.stdout


def test_a_library_for_another_processor_needs_its_linker(cli, model, tmp_path, monkeypatch):
    path = tmp_path / "tiny.so"
    foreign = "llvm -mtriple=riscv64-linux-gnu"
    result = cli.invoke(app, ["compile", str(model), "--target", foreign, "-o", str(path)])
    assert result.exit_code == 1
    assert "CXX=riscv64-linux-gnu-g++" in result.stderr
    assert not path.exists()


@pytest.mark.parametrize("code, status", [("0", 0), ("3", 3)])
def test_the_compile_command_ends_with_its_status_and_all_it_printed(code, status):
    """And does what others asked for at the end."""
    program = (
        "import atexit, sys, compiler.cli, compiler.cli.app\n"
        "atexit.register(print, 'at the end')\n"
        "def app(**_):\n"
        "    print('printed')\n"
        f"    sys.exit({code})\n"
        "compiler.cli.app.app = app\n"
        "sys.argv = ['baton', 'compile']\n"
        "compiler.cli.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout.split("\n") == ["printed", "at the end", ""]
    assert (done.returncode, done.stderr) == (status, "")


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_errors_of_the_cpp_compiler_keep_their_lines(cli, tmp_path):
    (tmp_path / "bad.cc").write_text("int first;\nint second = missing;\n")
    arguments = ["partitioner", "build", str(tmp_path / "bad.cc"), "-o", str(tmp_path / "bad.so")]
    result = cli.invoke(app, arguments)
    assert result.exit_code == 1
    assert "    2 | int second = missing;\n      |              ^~~~~~~" in result.stderr


def test_quiet_commands_print_no_warnings(cli, model, monkeypatch):
    def warn(*_, **__):
        warnings.warn("of Python", stacklevel=1)
        logging.getLogger("baton.lowering").warning("of Baton")
        raise FrontendError("the reason")

    monkeypatch.setattr(compile, "import_model", warn)
    result = cli.invoke(app, ["-q", "compile", str(model)])
    assert result.stderr == "baton: error: the reason\n"
    assert result.stdout == ""


def test_narrow_terminals_see_fewer_columns():
    rows = [("fused_conv2d_add", "nn.conv2d add", 1.5)]
    shown = console.table(("kernel", "operators", "ms"), rows, numbers=1, wide=("operators",))
    for width, columns in ((80, 2), (160, 3)):
        output = io.StringIO()
        rich.console.Console(file=output, width=width).print(shown)
        header = output.getvalue().splitlines()[1]
        assert header.count("┃") == columns + 1


def test_an_output_that_cannot_be_written_is_one_line():
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "compiler", "models"],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 1
    assert done.stderr == "baton: error: can't write to stdout: No space left on device\n"


def test_a_missing_compiler_is_an_error_before_the_build(cli, model, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("CXX", "CC"):
        monkeypatch.delenv(name, raising=False)
    result = cli.invoke(app, ["compile", str(model), "-o", str(tmp_path / "net.so")])
    assert result.exit_code == 1
    assert "linking a .so needs a C++ compiler" in result.stderr
    assert "build llvm" not in result.stderr
    assert os.listdir(tmp_path) == []


def test_ctrl_c_is_one_line_and_status_130():
    program = (
        "import os, signal, sys, time\n"
        "from compiler.cli import console\n"
        "console.end_on_interrupt()\n"
        "with console.interrupt_hint('the same command goes on'):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(30)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 130
    assert done.stderr.strip() == "baton: interrupted; the same command goes on"
