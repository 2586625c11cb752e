#!/usr/bin/env python3
"""Run folders of scripts under `baton run` and say what becomes of each, and why.

    python -m scripts.conformance.sweep_scripts CHECKOUT/gallery CHECKOUT/tutorials
    python -m scripts.conformance.sweep_scripts FOLDER --results out  # resumes what out/ lacks
    python -m scripts.conformance.sweep_scripts FOLDER --results out --failed
    python -m scripts.conformance.sweep_scripts FOLDER --match 'tune_*' --era 0.6
    python -m scripts.conformance.sweep_scripts repos --results out --known --depth 2

Each script runs in a process and a folder of its own, with links to its neighbors (and to the logs
in `ci_logs`, which TVM's documents are made with), below a folder with links to its folder's
neighbors, with a limit of --seconds; of scripts with the same text, as eras have them, only the
first. Nothing of the folders is changed. Before it runs, whole numbers in it are cut (`LARGEST`):
trials of tuners and repetitions of measurements, and sizes of matrices. A script whose packages are
not installed is not started. Files that a script would read or download are taken from --files, by
their names; there is no network. A script that ends at a name that nothing stands for, and would
download or need a GPU behind that, itself or a module beside it, counts as one that needs that.
"""

from __future__ import annotations

import argparse
import ast
import collections
import contextlib
import hashlib
import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The largest values of whole numbers, by the names, arguments and keys that they are given to, as
# default or in a call.
LARGEST = {
    **dict.fromkeys(("n_trial", "n_trials", "num_measure_trials", "num_trials", "trials"), 2),
    **dict.fromkeys(("max_trials_global", "max_trials_per_task", "num_trials_per_iter"), 2),
    **dict.fromkeys(("total_trials", "num_trials_total", "tune_trials", "tuning_trials"), 2),
    **dict.fromkeys(("number", "repeat", "early_stopping", "num_iter", "niter"), 2),
    **dict.fromkeys(("timing_repeat", "np_repeat", "iterations", "times", "run_time"), 2),
    **dict.fromkeys(("min_repeat_ms", "cooldown_interval"), 0),
    **dict.fromkeys(("M", "N", "K", "L"), 256),
}

# auto_scheduler's TaskScheduler wants a trial for each task of a network.
LARGEST_OF_TASKS = {**LARGEST, "num_measure_trials": 40}

RAN, CUT = "runs as it is", "runs, cut"
PACKAGE, FILE, DEVICE = "needs a package or program", "needs a file", "needs a device"
ARGUMENT = "needs an argument"
REFUSED, FAILED, TIMED_OUT = "is refused by name", "fails", "takes too long"
OUTCOMES = (RAN, CUT, PACKAGE, FILE, DEVICE, ARGUMENT, TIMED_OUT, REFUSED, FAILED)

# Modules of TVM's world, which compiler.legacy brings or refuses.
_OURS = {"tvm", "topi", "nnvm", "vta", "compiler", "baton"}
_FILE = re.compile(
    r"URLError|HTTPError|requests\.\S*ConnectionError|gaierror|ProxyError|MaxRetryError"
    r"|RemoteDisconnected|timed out.*download|download.*failed"
    r"|Error downloading|ExportError: can't export to"
    r"|FileNotFoundError|No such file or directory|is not a file|Cannot create new file"
    r"|TVMCFileNotFound|no internet connection|No pretrained model found|We couldn't connect to",
    re.IGNORECASE,
)
_PROGRAM = re.compile(
    r"cannot find clang|needs the \w+ package|environment variable TVM_NDK_CC"
    r"|No such file or directory: '(nvcc|clang|dot|adb|git|llvm-ar-\d+)'"
    r"|Weights only load failed"  # PyTorch before 2.6 loaded modules
)
_DEVICE = re.compile(
    r"(cuda|opencl|rocm|vulkan|metal|hexagon|ext_dev)\S* is not enabled|no CUDA|CUDA driver"
    r"|Cannot find (tracker|device)|Connection refused|Cannot connect to (the )?tracker"
    r"|is not TVM RPC server|Connect to \S+ failed|has no device with the key|no display name"
    r"|needs cuda:0, and libcuda|this TVM has no runtime for|Cannot find ROCm path"
    r"|can't compile for sm_|Cannot (request|detect device)|device .* does not exist"
    r"|not compiled with CUDA|no (usable )?GPU|no code generator for|CUDA runtime is not linked"
    r"|CUBLAS is not enabled"
    r"|Unknown optional runtime|Codegen is not found|KeyError: 'TVM_\w+_HOST'"
    r"|missing attribute `max_threads_per_block`|names no CPU feature that TVM's LLVM knows",
    re.IGNORECASE,
)
# What a script says that was started without its arguments, without a console, or on its own.
_ARGUMENT = re.compile(
    r"error: the following arguments are required|^bdb\.BdbQuit|^EOFError: EOF"
    r"|attempted relative import with no known parent package"  # a part of a package
)
_ENDS_AT_ONE = re.compile(r"^(IndexError|AssertionError)")
# A name that nothing stands for, and what a script that ends at one would need later on.
_NAME = re.compile(r"LegacyImportError|cannot import name|No module named|has no attribute")
_DOWNLOADS, _COMPUTES = "it downloads", "it computes on a GPU"
_DOWNLOAD = re.compile(
    r"download_testdata\(|urlretrieve\(|download\(|torch\.hub\.load|download=True|get_torch_model\("
)
_GPU = re.compile(
    r"\.cuda\(\)|tvm\.cuda\(|(?<![=!]= )[\"'](cuda|rocm)\b|nvidia/|target\.(mali|hexagon)\("
)
_WHICH = re.compile(r"\bwhich\([\"']([\w.+-]+)[\"']\)")


# ---------------------------------------------------------------- what a script is cut to


class _Cut(ast.NodeVisitor):
    """Where whole numbers of a script are larger than `LARGEST` has them."""

    def __init__(self, source: str) -> None:
        self.largest = LARGEST_OF_TASKS if "TaskScheduler(" in source else LARGEST
        self.places: list[tuple[ast.Constant, int]] = []

    def _cut(self, name: str, value: ast.expr) -> None:
        largest = self.largest.get(name)
        number = isinstance(value, ast.Constant) and type(value.value) is int
        if largest is not None and number and value.value > largest:  # type: ignore[attr-defined]
            self.places.append((value, largest))  # type: ignore[arg-type]

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                for each, value in zip(target.elts, node.value.elts):
                    if isinstance(each, ast.Name):
                        self._cut(each.id, value)
            elif isinstance(target, ast.Name):
                self._cut(target.id, node.value)
        self.generic_visit(node)

    def visit_arguments(self, node: ast.arguments) -> None:
        named = [*node.posonlyargs, *node.args]
        for each, value in zip(named[len(named) - len(node.defaults) :], node.defaults):
            self._cut(each.arg, value)
        for each, default in zip(node.kwonlyargs, node.kw_defaults):
            if default is not None:
                self._cut(each.arg, default)
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        self._cut(node.arg or "", node.value)
        self.generic_visit(node)

    def visit_Dict(self, node: ast.Dict) -> None:
        for key, value in zip(node.keys, node.values):
            if isinstance(key, ast.Constant):
                self._cut(str(key.value), value)
        self.generic_visit(node)


def cut(source: str) -> tuple[str, int]:
    """A script's text with smaller numbers, and how many were cut."""
    visitor = _Cut(source)
    visitor.visit(ast.parse(source))
    places = {(at.lineno, at.col_offset): (at, new) for at, new in visitor.places}
    lines = source.encode().splitlines(keepends=True)
    for (line, start), (at, new) in sorted(places.items(), reverse=True):
        text = lines[line - 1]
        lines[line - 1] = text[:start] + str(new).encode() + text[at.end_col_offset :]
    return b"".join(lines).decode(), len(places)


def imported(tree: ast.Module) -> set[str]:
    """Packages and modules that statements outside of functions and `try` import."""
    wanted: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Import):
            wanted |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            wanted.add((node.module or "").partition(".")[0])
    return wanted


def missing_packages(tree: ast.Module) -> list[str]:
    """Those of them that nobody has installed."""
    wanted = imported(tree) - _OURS
    return sorted(name for name in wanted if importlib.util.find_spec(name) is None)


# ---------------------------------------------------------------- one script


def run_script(script: pathlib.Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run one script: `outcome` (of `OUTCOMES`), `why`, `cut` (how many numbers), `seconds`."""
    source = script.read_text(errors="replace")
    try:
        text, places = cut(source)
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        return {"outcome": FAILED, "why": f"not a script of Python 3: {error}"}
    own = script.resolve().parent
    beside = {
        path.stem: path
        for folder in (own.parent, own)
        for path in folder.iterdir()
        if path.name != script.name
    }
    missing = [name for name in missing_packages(tree) if name not in beside]
    if missing:
        return {"outcome": PACKAGE, "why": f"ModuleNotFoundError: {', '.join(missing)}"}
    with tempfile.TemporaryDirectory(prefix="sweep_") as folder:
        here = pathlib.Path(folder) / "parent" / "script"
        here.mkdir(parents=True)
        given = options.files.resolve().iterdir() if options.files else ()
        for path in (*own.iterdir(), *own.glob("ci_logs/*"), *given, *own.parent.iterdir()):
            into = here.parent if path.parent == own.parent else here
            if path.name != script.name and not (into / path.name).exists():
                (into / path.name).symlink_to(path.resolve())
        (here / script.name).write_text(text)
        started = time.monotonic()
        status, output = _run(here / script.name, options)
        seconds = round(time.monotonic() - started, 1)
    outcome, why = judge(status, output)
    if outcome == RAN and places:
        outcome = CUT
    if outcome == FAILED and any(shutil.which(name) is None for name in _WHICH.findall(source)):
        outcome = PACKAGE
    later = _needs_later(tree, beside)
    if outcome in (REFUSED, FAILED) and _NAME.search(why) and later:
        outcome = FILE if later == _DOWNLOADS else DEVICE
        why = f"{later}; {why}"
    return {"outcome": outcome, "why": why, "cut": places, "seconds": seconds}


def _needs_later(tree: ast.Module, beside: dict[str, pathlib.Path]) -> str:
    """What a script, or a module beside it that it imports, would need; "" for nothing."""
    code = ast.unparse(tree)  # without comments
    modules = [beside[name] for name in imported(tree) if name in beside]
    texts = [path.read_text(errors="replace") for path in modules if path.is_file()]
    if _DOWNLOAD.search("\n".join([code, *texts])):
        return _DOWNLOADS
    return _COMPUTES if _GPU.search(code) else ""


def _run(script: pathlib.Path, options: argparse.Namespace) -> tuple[int | None, str]:
    """The exit status of `baton run script`, None if it took too long, and what it printed."""
    command = [sys.executable, "-m", "compiler", "run"]
    command += [*(["--era", options.era] if options.era else []), str(script)]
    nowhere = "http://127.0.0.1:9"  # downloads fail at once
    environment = {
        **os.environ,
        **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), nowhere),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "HF_HUB_OFFLINE": "1",
        "MPLBACKEND": "Agg",
        "TEST_DATA_ROOT_PATH": str(options.files.resolve() if options.files else script.parent),
    }
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            cwd=script.parent,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            status: int | None = process.wait(options.seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:  # the processes that it left behind, too
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        return status, output.read().decode(errors="replace")


def judge(status: int | None, output: str) -> tuple[str, str]:
    """The outcome that an exit status and the last error of an output say, and that error."""
    if status == 0:
        return RAN, ""
    error = _last_error(output)
    if status is None:
        return TIMED_OUT, error
    package = re.match(r"(?:ModuleNotFound|Import)Error: No module named '(\w+)", error)
    if (package and package[1] not in _OURS) or _PROGRAM.search(error):
        return PACKAGE, error
    if _ARGUMENT.search(error) or (_ENDS_AT_ONE.search(error) and "sys.argv" in _line_of(output)):
        return ARGUMENT, error
    if _FILE.search(error):
        return FILE, error
    if _DEVICE.search(error):
        return DEVICE, error
    if "LegacyImportError" in error:
        return REFUSED, error
    return FAILED, error or f"exit status {status}"


_ERROR = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning|Failure)\b.*)$")


def _last_error(output: str) -> str:
    """The last line of an output that names an exception, with the line after it; else the last."""
    lines = [line for line in output.splitlines() if line.strip()]
    for index in range(len(lines) - 1, -1, -1):
        if _ERROR.match(lines[index]):
            return " ".join(lines[index : index + 2])[:400]
    return lines[-1][:400] if lines else ""


def _line_of(output: str) -> str:
    """The line of the script that its last error came from."""
    lines = output.splitlines()
    places = [index for index, line in enumerate(lines) if line.startswith('  File "')]
    return lines[places[-1] + 1] if places and places[-1] + 1 < len(lines) else ""


# ---------------------------------------------------------------- all of them


def scripts_of(folders: list[pathlib.Path], match: list[str]) -> Iterator[pathlib.Path]:
    """Python files that run by themselves: not packages' parts, tests or settings of documents."""
    for folder in folders:
        paths = [folder] if folder.is_file() else sorted(folder.rglob("*.py"))
        for path in paths:
            parts = path.relative_to(folder).parts if path != folder else (path.name,)
            if path.name in ("__init__.py", "setup.py", "conf.py") or path.name.startswith("test_"):
                continue
            if any(part.startswith(".") for part in parts):
                continue
            if not match or any(path.match(pattern) for pattern in match):
                yield path


def print_table(found: dict[str, dict[str, Any]]) -> None:
    """One line for each folder, and the sums; last what ran of what needs nothing missing."""
    print(f"| folder | {' | '.join(OUTCOMES)} | |\n|---|{'---|' * len(OUTCOMES)}---|")
    rows: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for each in found.values():
        for row in (each["folder"], "total"):
            rows[row][each["outcome"]] += 1
    rows["total"] = rows.pop("total", collections.Counter())
    ran = tried = 0
    for row, counts in rows.items():
        ran = counts[RAN] + counts[CUT]
        tried = ran + counts[TIMED_OUT] + counts[REFUSED] + counts[FAILED]
        numbers = " | ".join(str(counts[each]) for each in OUTCOMES)
        print(f"| {row} | {numbers} | {ran} of {tried} |")
    if tried:
        print(f"\n{ran} of {tried} that need nothing missing run to the end ({ran / tried:.0%})")


def print_causes(found: dict[str, dict[str, Any]], limit: int) -> None:
    """What does not run, by what it says, the most frequent first."""
    groups: dict[str, list[str]] = collections.defaultdict(list)
    for name, each in found.items():
        if each["outcome"] not in (RAN, CUT):
            why = re.sub(r"0x[0-9a-f]+|\d+", "N", each["why"])[:200]
            groups[f"{each['outcome']}: {why}"].append(name)
    print("\ncauses (scripts, outcome and error, the scripts):")
    for cause, names in sorted(groups.items(), key=lambda item: -len(item[1]))[:limit]:
        print(f"{len(names):4}  {cause}\n        {', '.join(names[:4])}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=pathlib.Path, help="folders or scripts")
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("sweep_results"))
    parser.add_argument("--failed", action="store_true", help="run again what did not run")
    parser.add_argument("--seconds", type=float, default=120, help="the longest one may take")
    parser.add_argument("--match", action="append", default=[], help="pattern of files' names")
    parser.add_argument("--era", help="for `baton run`; by default it finds out")
    parser.add_argument("--files", type=pathlib.Path, help="folder of what scripts would download")
    parser.add_argument("--known", action="store_true", help="only what --results has already")
    parser.add_argument("--depth", type=int, help="folders of a path that a row of the table is of")
    parser.add_argument("--causes", type=int, default=60, help="how many causes to print")
    options = parser.parse_args()

    options.results.mkdir(parents=True, exist_ok=True)
    log = options.results / "scripts.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    known = {line["text"]: line for line in map(json.loads, lines)}
    ran: set[str] = set()
    found = {}
    for script in scripts_of(options.folders, options.match):
        text = hashlib.sha256(script.read_bytes()).hexdigest()
        result = known.get(text)
        again = options.failed and text not in ran
        if result is None and options.known:
            continue
        if result is None or (again and result["outcome"] not in (RAN, CUT, PACKAGE)):
            result = {"script": str(script), "text": text, **run_script(script, options)}
            known[text] = result
            ran.add(text)
            with log.open("a") as written:
                written.write(json.dumps(result) + "\n")
            print(f"{result['outcome']}: {script}: {result['why'][:120]}", file=sys.stderr)
        row = pathlib.Path(*script.parent.parts[: options.depth])
        found[str(script)] = {**result, "folder": str(row)}
    print_table(found)
    print_causes(found, options.causes)
    return 0


if __name__ == "__main__":
    os.environ.setdefault("TVM_NUM_THREADS", "1")
    sys.exit(main())
