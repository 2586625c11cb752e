"""The sweep over strangers' scripts tells what runs from what fails, and why."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

SCRIPTS = {
    "runs.py": "import sys\nsys.path.append('..')\nimport tvm, beside, above\n"
    "from tvm import relay\nassert beside.VALUE == 3 == above.VALUE",
    "cut.py": "n_trial = 1000\nassert n_trial == 2, n_trial",
    "package.py": "import a_package_that_nobody_has",
    "later.py": "def f():\n    import a_package_that_nobody_has\nf()",
    "download.py": "import urllib.request as u\nu.urlopen('http://example.com/x')",
    "fails.py": "raise ValueError('on purpose')",
    "hangs.py": "import time\ntime.sleep(100)",
    "wants.py": "import sys\nprint(sys.argv[1])",
    "gone.py": "import tvm.micro\ntvm.contrib.download.download('http://example.com/x')",
    "behind.py": "import fetched\nfrom tvm import a_name_that_nobody_has",
    "fetched.py": "def fetch(path):\n    return CIFAR10(path, download=True)",
    "program.py": "from shutil import which\nprint(which('a_program_nobody_has') + '/bin')",
    "twice.py": "from twice import Model",
    "broken.py": "print 1",
    "beside.py": "VALUE = 3",
}


@pytest.fixture(scope="module")
def sweep():
    from scripts.conformance import sweep_scripts

    return sweep_scripts


def test_every_outcome_is_told_and_kept(tmp_path, sweep):
    folder, results = tmp_path / "scripts", tmp_path / "out"
    folder.mkdir()
    for name, text in SCRIPTS.items():
        (folder / name).write_text(text)
    (tmp_path / "above.py").write_text("VALUE = 3")
    command = [
        sys.executable,
        "-m",
        "scripts.conformance.sweep_scripts",
        str(folder),
        "--results",
        str(results),
        "--seconds=15",
    ]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
    lines = (results / "scripts.jsonl").read_text().splitlines()
    found = {pathlib.Path(row["script"]).name: row for row in map(json.loads, lines)}
    assert {name: row["outcome"] for name, row in found.items()} == {
        "runs.py": sweep.RAN,
        "beside.py": sweep.RAN,
        "cut.py": sweep.CUT,
        "package.py": sweep.PACKAGE,
        "later.py": sweep.PACKAGE,
        "download.py": sweep.FILE,
        "fails.py": sweep.FAILED,
        "hangs.py": sweep.TIMED_OUT,
        "wants.py": sweep.ARGUMENT,
        "gone.py": sweep.FILE,
        "behind.py": sweep.FILE,
        "fetched.py": sweep.RAN,
        "program.py": sweep.PACKAGE,
        "twice.py": sweep.PACKAGE,
        "broken.py": sweep.FAILED,
    }
    assert found["fails.py"]["why"] == "ValueError: on purpose"
    assert "4 of 7 that need nothing missing run to the end (57%)" in ran.stdout
    again = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert again.stdout == ran.stdout and again.stderr == ""
    (folder / "new.py").write_text("import tvm")
    known = [*command, "--known", f"--depth={len(tmp_path.parts)}"]
    rows = subprocess.run(known, capture_output=True, text=True, timeout=60, check=True).stdout
    assert f"| {tmp_path} | 3 | 1 | 4 | 3 | 0 | 1 | 1 | 0 | 2 | 4 of 7 |" in rows


def test_numbers_are_cut_where_names_say_what_they_are(sweep):
    source = (
        "é, N = 1, 512; f(n_trial=3, number=10, x=10)  # n\nd = {'trials': 9, 'y': 9}\nM = L = 64"
    )
    text, places = sweep.cut(source)
    assert places == 4
    assert text == source.replace("512", "256").replace("=3", "=2").replace(
        "number=10", "number=2"
    ).replace("'trials': 9", "'trials': 2")


def test_a_scheduler_of_tasks_has_trials_for_them(sweep):
    source = "tuner = auto_scheduler.TaskScheduler(tasks)\nf(num_measure_trials=200, repeat=9)"
    text, _ = sweep.cut(source)
    assert text == source.replace("200", "40").replace("repeat=9", "repeat=2")


def test_defaults_of_arguments_are_cut(sweep):
    source = "def f(a, x=9, n_trial=9, *, repeat=9, trials=None, y): pass"
    text, places = sweep.cut(source)
    assert places == 2
    assert text == source.replace("n_trial=9", "n_trial=2").replace("repeat=9", "repeat=2")


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        ("InternalError: Device API cuda is not enabled.", "DEVICE"),
        ("urllib.error.URLError: <urlopen error [Errno 111] Connection refused>", "FILE"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'resnet18.onnx'", "FILE"),
        ("IncompatibleDeviceError: library 'default' needs cuda:0, and libcuda.so.1 is", "DEVICE"),
        ("RuntimeError: Error downloading train-images.gz: Tried http://example.com", "FILE"),
        ("RelayError: DotPlotter needs the graphviz package: pip install it", "PACKAGE"),
        ("TVMCFileNotFound: there is no model file m.onnx", "FILE"),
        ("BatonError: no RPC tracker answers at 127.0.0.1:9190: Connection refused", "DEVICE"),
        ("RuntimeError: cannot find clang, candidates are: []", "PACKAGE"),
        ("compiler.errors.LegacyImportError: tvm.micro is gone", "REFUSED"),
        ("ImportError: No module named 'tvm.nothing'", "FAILED"),
        ("tvm.error.InternalError: URL 1.2.3.4:9091 is not TVM RPC server", "DEVICE"),
        ("RuntimeError: Cannot find ROCm path", "DEVICE"),
        ("OSError: We couldn't connect to 'https://huggingface.co' to load the files", "FILE"),
        ("ImportError: attempted relative import with no known parent package", "ARGUMENT"),
    ],
)
def test_errors_say_what_is_missing(sweep, error, outcome):
    assert sweep.judge(1, f"noise\n{error}\n") == (getattr(sweep, outcome), error)


@pytest.mark.parametrize("error", ["IndexError: list index out of range", "AssertionError"])
def test_a_script_that_ends_at_its_arguments_needs_some(sweep, error):
    place = '  File "a.py", line 3, in <module>\n    assert len(sys.argv) == 2\n'
    assert sweep.judge(1, f"{place}{error}\n")[0] == sweep.ARGUMENT
    assert sweep.judge(1, f"{place.replace('sys.argv', 'values')}{error}\n")[0] == sweep.FAILED
