"""What the programs that run an old project's own test files have in common.

The files run in a process that this one watches: a test that crashes it or takes too long is
recorded as such, and a new process goes on with the tests after it.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
CRASHED, TIMED_OUT = "crashed", "timed out"
REFUSED = "refused"
"""Failed since the test asks for what Baton leaves out by design, and says so."""


@dataclass(frozen=True)
class Suite:
    """The test files of an old project."""

    script: str
    """The program, which is started again for the tests."""
    description: str
    checkout: str
    """What the argument CHECKOUT is."""
    folders: Sequence[pathlib.Path]
    """Where the files are looked for in a checkout, in this order."""
    default: Sequence[str]
    """Patterns of the files that run when none are named."""
    prepare: Callable[[str], list[str]]
    """Makes the old names importable; takes the checkout and returns options of pytest."""
    set_up: Callable[[pathlib.Path, pathlib.Path, list[pathlib.Path]], None] = lambda *_: None
    """Puts what the tests look for into their folder; takes checkout, folder and files."""


# ---------------------------------------------------------------- the tests, in their own process


class Recorder:
    """The pytest plugin that writes what becomes of each test as soon as it is known."""

    def __init__(self, log: pathlib.Path) -> None:
        self._done = set(Results(log).outcomes)
        self._file = log.open("a")

    def write(self, **line: Any) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [item for item in items if item.nodeid not in self._done]

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.write(test=f"{report.nodeid}::(import)", outcome=FAILED, why=_cause(report))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.write(start=nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.outcome != PASSED:
            outcome = PASSED if report.outcome == SKIPPED and _as_expected(report) else None
            outcome = outcome or report.outcome
            why = "" if outcome == PASSED else _cause(report)
            if outcome == FAILED and "OutOfScopeError" in why:
                outcome = REFUSED
            self.write(test=report.nodeid, outcome=outcome, why=why, seconds=report.duration)


def _as_expected(report: Any) -> bool:
    """Whether the test was marked to fail, and did."""
    return report.when == "call" and hasattr(report, "wasxfail")


def _cause(report: Any) -> str:
    """The error's last lines that say something, and where in the test it came from."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        return crash.message
    text = str(report.longrepr)  # of a file that can't be imported: what Python says of it last
    errors = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
    return errors[-1] if errors else text[-600:]


def run_files(suite: Suite, files: list[str], logs: list[str], checkout: str, chosen: str) -> int:
    """Run the chosen tests of each file that its log does not have yet."""
    import pytest

    options = ["-q", "--no-header", "--tb=short", "-p", "no:cacheprovider", "-p", "no:xdist"]
    options += ["--rootdir", checkout, *suite.prepare(checkout)]
    options += ["-k", chosen] if chosen else []
    for file, log in zip(files, logs):
        recorder = Recorder(pathlib.Path(log))
        status = pytest.ExitCode(pytest.main([*options, file], plugins=[recorder]))
        if status in (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR):
            name = f"{pathlib.Path(file).name}::(pytest)"
            recorder.write(test=name, outcome=FAILED, why=status.name)
        recorder.write(finished=True)
    return 0


# ---------------------------------------------------------------- all files, watched from outside


@dataclass
class Results:
    """What a log of `Recorder` says."""

    log: pathlib.Path
    outcomes: dict[str, dict[str, Any]] = field(default_factory=dict)
    running: str = ""
    finished: bool = False

    def __post_init__(self) -> None:
        if not self.log.exists():
            return
        for text in self.log.read_text().splitlines():
            line = json.loads(text)
            if "test" in line:
                before = self.outcomes.get(line["test"])
                if before is None or before["outcome"] == PASSED:  # a failing teardown counts
                    self.outcomes[line["test"]] = line
                self.running = ""
            self.running = line.get("start", self.running)
            self.finished = self.finished or "finished" in line

    def count(self, *outcomes: str) -> int:
        return sum(each["outcome"] in outcomes for each in self.outcomes.values())

    def forget_failures(self) -> None:
        """Keep what passed or was skipped, so that the rest runs again."""
        kept = [each for each in self.outcomes.values() if each["outcome"] in (PASSED, SKIPPED)]
        if len(kept) < len(self.outcomes):
            self.log.write_text("".join(json.dumps(line) + "\n" for line in kept))


def run_to_the_end(
    suite: Suite,
    logs: dict[pathlib.Path, pathlib.Path],
    checkout: pathlib.Path,
    seconds: float,
    chosen: str,
) -> None:
    """Run all files, from file to log, through crashes and tests that hang."""
    while True:
        left = {file: log for file, log in logs.items() if not Results(log).finished}
        if not left:
            return
        command = [sys.executable, "-m", suite.script, str(checkout), "-k", chosen, "--worker"]
        command += [str(path) for pair in left.items() for path in pair]
        folder = next(iter(left.values())).parent
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        with (folder / "output.txt").open("a") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, cwd=folder, env=env)
            hung = _watch(process, list(left.values()), seconds)
        for file, log in left.items():
            if not Results(log).finished:
                _note_the_end(file, log, TIMED_OUT if hung else CRASHED, process.returncode)
                break


def _note_the_end(file: pathlib.Path, log: pathlib.Path, outcome: str, status: int) -> None:
    """Record that the process ended in a file's running test, or before its first."""
    running = Results(log).running
    why = "took too long" if outcome == TIMED_OUT else f"exit status {status}"
    line = {"test": running or f"{file.name}::(import)", "outcome": outcome, "why": why}
    with log.open("a") as written:
        written.write(json.dumps(line) + "\n")
        if not running:  # there is nothing to go on with
            written.write(json.dumps({"finished": True}) + "\n")


def _watch(process: subprocess.Popen[bytes], logs: list[pathlib.Path], seconds: float) -> bool:
    """Wait for the process; kill it, and return True, when nothing is recorded for that long."""
    size, since = -1, time.monotonic()
    while process.poll() is None:
        time.sleep(0.2)
        now = sum(log.stat().st_size for log in logs if log.exists())
        if now != size:
            size, since = now, time.monotonic()
        if time.monotonic() - since > seconds:
            process.kill()
            process.wait()
            return True
    return False


def chosen_files(
    suite: Suite, checkout: pathlib.Path, patterns: list[str]
) -> Iterator[pathlib.Path]:
    """The test files of the patterns, in the first of the suite's folders that has any."""
    folders = [checkout / folder for folder in suite.folders]
    for pattern in patterns or suite.default:
        found = next(filter(None, (sorted(folder.glob(pattern)) for folder in folders)), [])
        if not found:
            print(f"{pattern}: no such file in {folders[-1]}", file=sys.stderr)
        yield from (path for path in found if path.name.startswith("test_"))


def name_of(suite: Suite, file: pathlib.Path, checkout: pathlib.Path) -> str:
    """A test file's name below the folder that it was found in."""
    folder = next(each for each in suite.folders if file.is_relative_to(checkout / each))
    return str(file.relative_to(checkout / folder))


# ---------------------------------------------------------------- the report


def print_table(results: dict[str, Results]) -> None:
    """One line for each file, and the sums."""
    columns = {
        "passed": (PASSED,),
        "failed": (FAILED,),
        "refused by design": (REFUSED,),
        "skipped": (SKIPPED,),
        "crashed or timed out": (CRASHED, TIMED_OUT),
    }
    print(f"| file | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    rows = {
        name: [each.count(*outcomes) for outcomes in columns.values()]
        for name, each in results.items()
    }
    rows["total"] = [sum(column) for column in zip(*rows.values())]
    for name, counts in rows.items():
        print(f"| {name} | {' | '.join(map(str, counts))} |")


def print_causes(results: dict[str, Results], limit: int) -> None:
    """Failures by what they say, the most frequent first, with an example of each."""
    groups: dict[str, list[str]] = collections.defaultdict(list)
    for each in results.values():
        for test, line in each.outcomes.items():
            if line["outcome"] not in (PASSED, SKIPPED):
                groups[_group(line["why"])].append(test)
    print("\ncauses (tests, message, one of the tests):")
    for cause, tests in sorted(groups.items(), key=lambda item: -len(item[1]))[:limit]:
        print(f"{len(tests):5}  {cause}\n       {tests[0].split('/')[-1]}")


def _group(why: str) -> str:
    """The first line of a message without its numbers, addresses and places in files."""
    first = next((line for line in why.splitlines() if line.strip()), "")
    first = re.sub(r"\S+\.py:\d+ in \S+: ", "", first)
    return re.sub(r"0x[0-9a-f]+|\d+", "N", first)[:170]


def main(suite: Suite) -> int:
    """Run the files that the command line names, and print what became of them."""
    os.environ.setdefault("TVM_NUM_THREADS", "1")
    parser = argparse.ArgumentParser(description=suite.description.splitlines()[0])
    parser.add_argument("checkout", type=pathlib.Path, help=suite.checkout)
    parser.add_argument("files", nargs="*", help=f"names or patterns below {suite.folders[0]}")
    parser.add_argument("-k", dest="chosen", default="", help="only tests that pytest -k takes")
    parser.add_argument("--results", type=pathlib.Path, help="folder that keeps what came out")
    parser.add_argument("--failed", action="store_true", help="run again what failed before")
    parser.add_argument("--seconds", type=float, default=120, help="the longest one test may take")
    parser.add_argument("--causes", type=int, default=60, help="how many causes to print")
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_intermixed_args()
    if options.worker:
        files, logs = options.worker[::2], options.worker[1::2]
        return run_files(suite, files, logs, str(options.checkout), options.chosen)

    checkout = options.checkout.resolve()
    default = f"{suite.script.rpartition('.')[2]}_results"
    folder = (options.results or pathlib.Path(default)).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    of_file = {}
    for file in chosen_files(suite, checkout, options.files):
        of_file[file] = folder / f"{name_of(suite, file, checkout).replace('/', '.')}.jsonl"
        if options.failed:
            Results(of_file[file]).forget_failures()
    suite.set_up(checkout, folder, list(of_file))
    run_to_the_end(suite, of_file, checkout, options.seconds, options.chosen)
    results = {name_of(suite, file, checkout): Results(log) for file, log in of_file.items()}
    print_table(results)
    print_causes(results, options.causes)
    return 0
