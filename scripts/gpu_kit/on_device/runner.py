"""Runs the kit's stages, each step in a worker that may crash or hang, and writes all results.

Needs nothing but Python: `gpu-kit/run.sh` starts it. A worker process gets the steps of a stage and
reports each. One that dies or takes too long is replaced, and the remaining steps go on. After
each step the results are written: `results.jsonl` has a line for each, `results.txt` is the table,
`log.txt` what the workers printed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import lzma
import os
import pathlib
import platform
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from typing import IO, Any

HERE = pathlib.Path(__file__).resolve().parent
MARK = "@kit "
STAGE_SECONDS = 115
"""A stage takes less than two minutes."""

Result = dict[str, Any]


class Archive:
    """The kit's pieces, and where they are unpacked."""

    def __init__(self, kit: pathlib.Path) -> None:
        self.kit = kit
        self.folder = pathlib.Path(os.environ.get("BATON_KIT_WORK", kit / "unpacked"))

    def pieces(self, name: str) -> list[pathlib.Path]:
        """The files of an archive, in order; empty if one is missing."""
        listed = json.loads((self.kit / "pieces.json").read_text())[name]
        found = [self.kit / piece for piece in listed]
        return found if all(piece.is_file() for piece in found) else []

    def unpack(self, name: str) -> str | None:
        """Unpack an archive unless it is unpacked; what is missing."""
        done = self.folder / f".{name}"
        if done.exists():
            return None
        pieces = self.pieces(name)
        if not pieces:
            return f"pieces of {name} are missing: carry all files of the kit, also in two turns"
        self.folder.mkdir(parents=True, exist_ok=True)
        with (
            lzma.open(_Joined(pieces)) as stream,  # type: ignore[call-overload]
            tarfile.open(fileobj=stream, mode="r|") as archive,
        ):
            archive.extractall(self.folder, filter="data")
        done.touch()
        return None


class _Joined:
    """Files read as one."""

    def __init__(self, paths: list[pathlib.Path]) -> None:
        self._paths = list(paths)
        self._file: IO[bytes] | None = None

    def read(self, size: int = -1) -> bytes:
        """The next bytes, none at the end."""
        while True:
            if self._file is None:
                if not self._paths:
                    return b""
                self._file = self._paths.pop(0).open("rb")
            found = self._file.read(size)
            if found:
                return found
            self._file.close()
            self._file = None


class Report:
    """The results so far, written after each."""

    def __init__(self, folder: pathlib.Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.results: list[Result] = []
        self.complaint: re.Pattern[str] | None = None
        self.complaints: list[str] = []
        kept = folder / "results.jsonl"
        if kept.exists():  # of an earlier call, with other stages
            lines = kept.read_text().splitlines()
            self.results = [json.loads(line) for line in lines if line.endswith("}")]

    def start(self, stage: str) -> None:
        """Forget what an earlier call found out about a stage."""
        self.results = [each for each in self.results if each["stage"] != stage]

    def add(self, result: Result) -> None:
        """Take a result and write all."""
        self.results.append(result)
        lines = "".join(json.dumps(each) + "\n" for each in self.results)
        self._write("results.jsonl", lines)
        self._write("results.txt", self.table())
        print(_row(result), flush=True)

    def table(self) -> str:
        """Readable lines: a summary for each stage, then all steps."""
        counts: dict[str, dict[str, int]] = {}
        for each in self.results:
            stage = counts.setdefault(each["stage"], {})
            stage[each["status"]] = stage.get(each["status"], 0) + 1
        head = [
            f"stage {stage}: {', '.join(f'{n} {status}' for status, n in found.items())}"
            for stage, found in counts.items()
        ]
        return "\n".join([*head, "", *map(_row, self.results), ""])

    def log(self, text: str) -> None:
        """Keep what a worker printed."""
        if self.complaint is not None and self.complaint.search(text):
            self.complaints.append(text.strip())
        with (self.folder / "log.txt").open("a") as file:
            file.write(text)

    def _write(self, name: str, text: str) -> None:
        draft = self.folder / f"{name}.new"
        draft.write_text(text)
        os.replace(draft, self.folder / name)


def _row(result: Result) -> str:
    said = {
        key: f"{value:.3g}" if isinstance(value, float) else value
        for key, value in result.items()
        if key not in ("stage", "step", "status", "seconds")
    }
    text = "  ".join(f"{key}={value}" for key, value in said.items())
    seconds = result.get("seconds", 0.0)
    return f"{result['stage']:3}{result['step']:48}{result['status']:12}{seconds:7.1f} s  {text}"


def run_stage(
    stage: dict[str, Any], command: list[str], environment: dict[str, str], report: Report
) -> None:
    """Run the steps of a stage; those that the stage's time cuts off are "not reached".

    `stage`: "stage", "seconds" (of the stage), "step_seconds" (of a step), "start_seconds" (of a
    worker until its first step), and "steps", objects with a "step" each.
    """
    report.start(stage["stage"])
    report.complaint = re.compile(stage["complaints"]) if "complaints" in stage else None
    report.complaints = []
    deadline = time.monotonic() + stage["seconds"]
    todo = list(stage["steps"])
    while todo and time.monotonic() < deadline:
        worker = _Worker([*stage.get("under", []), *command], environment, list(todo), report)
        for result in worker.results(stage, deadline):
            report.add({"stage": stage["stage"], **result})
            todo.pop(0)
    for step in todo:
        report.add({"stage": stage["stage"], "step": step["step"], "status": "not reached"})
    if report.complaint is not None:
        said: Result = {"status": "right"}
        if report.complaints:
            said = {
                "status": "wrong",
                "count": len(report.complaints),
                "first": report.complaints[0],
            }
        report.add({"stage": stage["stage"], "step": "complaints of the tool", **said})


class _Worker:
    """A process that reports the begin and the end of each step on its standard output."""

    def __init__(
        self,
        command: list[str],
        environment: dict[str, str],
        steps: list[dict[str, Any]],
        report: Report,
    ) -> None:
        self._report = report
        self._steps = steps
        self._todo = report.folder / "todo.json"
        self._todo.write_text(json.dumps(steps))
        self._process = subprocess.Popen(
            [*command, str(self._todo)],
            env=environment,
            cwd=environment["BATON_KIT_FOLDER"],  # a checkout may be the folder that this is run in
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def results(self, stage: dict[str, Any], deadline: float) -> Iterator[Result]:
        """A result for each step that was begun; the last one's may be that it crashed or hung."""
        at, last = 0, time.monotonic()
        self._limit = min(deadline, last + stage["start_seconds"])
        try:
            for line in self._lines():
                if not line.startswith(MARK):
                    self._report.log(line)
                    continue
                said = json.loads(line.removeprefix(MARK))
                now = time.monotonic()
                if "begin" in said:
                    self._limit = min(
                        deadline, now + self._steps[at].get("seconds", stage["step_seconds"])
                    )
                    last = now
                    continue
                yield {"step": self._steps[at]["step"], **said, "seconds": now - last}
                at, last = at + 1, now
                self._limit = min(deadline, now + stage["step_seconds"])
            hung = time.monotonic() >= self._limit
        finally:
            self._end()
        if at < len(self._steps) and (hung or self._process.returncode != 3 or at == 0):
            status = "hung" if hung else "crashed"
            if hung and self._limit == deadline:
                status = "cut off"
            code = {} if hung else {"exit": self._process.returncode}
            seconds = time.monotonic() - last
            yield {"step": self._steps[at]["step"], "status": status, "seconds": seconds, **code}

    def _lines(self) -> Iterator[str]:
        """Lines of the output until it ends, or until the limit."""
        stream = self._process.stdout
        assert stream is not None
        rest = b""
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while True:
                left = self._limit - time.monotonic()
                if left <= 0:
                    return
                if not selector.select(left):
                    continue
                piece = os.read(stream.fileno(), 1 << 16)
                if not piece:
                    break
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    yield line.decode(errors="replace") + "\n"
        if rest:
            yield rest.decode(errors="replace") + "\n"
        with_limit = max(0.1, min(5.0, self._limit - time.monotonic()))
        try:
            self._process.wait(with_limit)
        except subprocess.TimeoutExpired:
            return

    def _end(self) -> None:
        """Kill the worker and whatever it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def machine() -> Result:
    """Describe the machine: GPU, driver, clocks, versions."""
    found: Result = {"python": platform.python_version(), "kernel": platform.release()}
    query = "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,power.limit,temperature.gpu"
    for key, command in {
        "gpu": ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"],
        "nvcc": ["nvcc", "--version"],
    }.items():
        if shutil.which(command[0]) is None:
            found[key] = f"{command[0]} is not on PATH"
            continue
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
            found[key] = (done.stdout.strip().splitlines() or ["nothing"])[-1]
        except (OSError, subprocess.TimeoutExpired) as error:
            found[key] = str(error)
    return found


def environment_of(archive: Archive, compiler: bool) -> dict[str, str]:
    """A worker's environment: the kit's packages first, all caches inside the kit."""
    folder = archive.folder
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONHOME", "TVM_LIBRARY_PATH")}
    caches = str(folder / "caches")
    given = {
        **kept,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(folder), kept.get("PYTHONPATH", "")])),
        "PYTHONUNBUFFERED": "1",
        "BATON_KIT_FOLDER": str(folder),
        "HOME": caches,
        "XDG_CACHE_HOME": caches,
        "TMPDIR": caches,
        "CUDA_CACHE_PATH": caches,
        "TRITON_CACHE_DIR": f"{caches}/triton",
        "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor",
    }
    pathlib.Path(caches).mkdir(parents=True, exist_ok=True)
    if not compiler:
        given["TVM_USE_RUNTIME_LIB"] = "1"
    return given


def main() -> int:
    """Run the stages that are named, or all; 1 if a step has not gone right."""
    parser = argparse.ArgumentParser(prog="run.sh", description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="?", type=pathlib.Path)
    parser.add_argument("--stages", nargs="+", help="of stages.json; all without it")
    parser.add_argument("--patience", type=float, default=1.0, help="factor of all limits")
    options = parser.parse_args()
    default = os.environ.get("BATON_KIT_RESULTS", str(HERE / "results"))
    report = Report((options.results or pathlib.Path(default)).resolve())
    stages = json.loads((HERE / "stages.json").read_text())
    known = [stage["stage"] for stage in stages]
    unknown = set(options.stages or []) - set(known)
    if unknown:
        parser.error(f"no stage {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    report.start("")
    report.add({"stage": "", "step": "machine", "status": "noted", **machine()})
    archive = Archive(HERE)
    for stage in stages:
        if options.stages and stage["stage"] not in options.stages:
            continue
        limits = {key: stage[key] * options.patience for key in stage if key.endswith("seconds")}
        _run({**stage, **limits}, archive, report)
    wrong = [each for each in report.results if each["status"] not in ("right", "noted", "skipped")]
    print(f"{len(wrong)} of {len(report.results)} steps have not gone right; see {report.folder}")
    return 1 if wrong else 0


def _run(stage: dict[str, Any], archive: Archive, report: Report) -> None:
    start = time.monotonic()
    missing = archive.unpack("base")
    if missing is None and stage.get("compiler"):
        missing = archive.unpack("compiler")
    under = stage.get("under", [])
    if missing is None and under and shutil.which(under[0]) is None:
        missing = f"{under[0]} is not on PATH"
    if missing is not None:
        report.start(stage["stage"])
        report.add(
            {"stage": stage["stage"], "step": "all", "status": "skipped", "because": missing}
        )
        return
    taken = time.monotonic() - start
    limited = {**stage, "seconds": max(1.0, stage["seconds"] - taken)}
    command = [sys.executable, "-B", "-u", "-m", "scripts.gpu_kit.on_device.worker"]
    run_stage(limited, command, environment_of(archive, bool(stage.get("compiler"))), report)
    report.add(
        {
            "stage": stage["stage"],
            "step": "whole stage",
            "status": "noted",
            "seconds": time.monotonic() - start,
            "gpu": machine()["gpu"],
        }
    )


if __name__ == "__main__":
    sys.exit(main())
