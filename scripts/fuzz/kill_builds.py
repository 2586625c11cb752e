#!/usr/bin/env python3
"""Kill builds, exports, tuning and writes at random moments, and look for what is lost or half.

    scripts/fuzz/kill_builds.py --kills 500

Each process builds a small network with the kernel cache on, exports the library, saves its weights
and appends to a log, again and again with new weights and another width, or tunes a convolution,
going on from a log. It is killed by SIGKILL at a random moment of the phase that was drawn. Then
the files must be whole: a library computes what one set of weights computes, whether loaded or
built from the cache, a parameter file has one set, of a log at most the line that was cut off is
not a record, no record is lost and no trial measured twice. What the killed process left behind
must be gone after the next one made something in the same places.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import pathlib
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINE = '{"round": %d}'
TUNERS = ("autotvm", "auto_scheduler")
PHASES = {
    **dict.fromkeys(("build", "cache", "export", "parameters", "log"), 0.188),
    **dict.fromkeys(TUNERS, 0.03),
}
"""Share of the kills that each phase gets: a tuning run takes long until it measures."""

Send = Callable[[Any], None]


# ---------------------------------------------------------------- what is killed


def width(number: int) -> int:
    """Rows and columns of a round's weights: other kernels in each of a hundred rounds."""
    return 64 + number % 100


def weights(number: int) -> np.ndarray:
    """The weights of a round, which no other has: the cache does not have its library."""
    return np.full((width(number), width(number)), number, "float32")


def build(number: int) -> Any:
    """The library of a round: a product with its weights."""
    from compiler import relay

    x = relay.var("x", shape=(1, width(number)))
    product = relay.nn.dense(x, relay.const(weights(number)))
    return relay.build(relay.Function([x], product), "llvm")


def work(folder: pathlib.Path, first: int, rounds: int | None, tuner: str, send: Send) -> None:
    """Rounds of a build, an export, and both kinds of writes; without end if `rounds` is None.

    Sends the name of each phase as it begins, and the number of each round as it ends. With a
    tuner, a convolution is tuned instead.
    """
    from compiler.lowering.cache.kernel_cache import KernelCache
    from compiler.mxnet.symbol import save_params
    from compiler.records.log_file import append_lines

    if tuner:
        send(tuner)
        {"autotvm": tune_templates, "auto_scheduler": tune_loops}[tuner](folder, first)
    write = KernelCache._write

    def announced(cache: KernelCache, name: str, content: Any) -> None:
        send("cache")
        write(cache, name, content)

    KernelCache._write = announced  # type: ignore[assignment, method-assign]
    for number in range(first, 10**9 if rounds is None else first + rounds):
        send("build")
        library = build(number)
        send("export")
        library.export_library(folder / "library.so")
        send("parameters")
        save_params(folder / "weights.params", {"w": weights(number)})
        send("log")
        append_lines(folder / "rounds.log", [LINE % number])
        send(number)


def convolution() -> Any:
    """A module with one convolution."""
    from compiler import relay

    x, w = relay.var("x", shape=(1, 16, 14, 14)), np.ones((32, 16, 3, 3), "float32")
    conv = relay.nn.conv2d(x, relay.const(w), padding=(1, 1), kernel_size=(3, 3), channels=32)
    return relay.Function([x], relay.nn.relu(conv))


def tune_templates(folder: pathlib.Path, seed: int) -> None:
    """Tune by AutoTVM's templates, from where the log ends, without end."""
    from compiler import autotvm

    np.random.seed(seed)
    log = str(folder / "autotvm.json")
    runner = autotvm.LocalRunner(number=1, repeat=1, min_repeat_ms=0)
    option = autotvm.measure_option(autotvm.LocalBuilder(), runner)
    for task in autotvm.task.extract_from_program(convolution(), {}, "llvm"):
        tuner = autotvm.tuner.XGBTuner(task, feature_type="knob")
        if os.path.exists(log) and os.path.getsize(log):
            tuner.load_history(autotvm.load_from_file(log))
        tuner.tune(1000, option, callbacks=[autotvm.callback.log_to_file(log)])


def tune_loops(folder: pathlib.Path, seed: int) -> None:
    """Tune by auto_scheduler's search, from where the log ends, without end."""
    from compiler import auto_scheduler

    log = str(folder / "auto_scheduler.json")
    tasks, counts = auto_scheduler.extract_tasks(convolution(), {}, "llvm")
    tuner = auto_scheduler.TaskScheduler(tasks, counts, load_log_file=log, callbacks=[])
    options = auto_scheduler.TuningOptions(
        1000,
        num_measures_per_round=8,
        verbose=0,
        runner=auto_scheduler.LocalRunner(number=1, min_repeat_ms=0),
        measure_callbacks=[auto_scheduler.RecordToFile(log)],
    )
    tuner.tune(options, search_policy_params={"seed": seed})


# ---------------------------------------------------------------- what is looked at


def value(library: Any) -> list[float]:
    """What a library computes of ones, divided by its width: the number its weights consist of."""
    import tvm

    [x] = library.metadata.inputs
    executor = library["default"](tvm.cpu())
    executor.run(x=np.ones(x.shape, "float32"))
    return [float(each) / x.shape[1] for each in np.unique(executor.get_output(0).numpy())]


def faults(folder: pathlib.Path, done: list[int], kills: int) -> list[str]:
    """What is wrong with the files; `done` are the rounds that were known to be finished."""
    from compiler.mxnet.symbol import load_params
    from compiler.runtime import load_module

    found = []
    if (folder / "library.so").exists():
        computed = value(load_module(folder / "library.so"))
        if len(computed) != 1 or computed[0] % 1:
            found.append(f"the library computes {computed[:4]}")
    elif done:
        found.append("the library is gone")
    if (folder / "weights.params").exists():
        saved = np.unique(load_params(folder / "weights.params")["w"])
        if saved.size != 1:
            found.append(f"the parameters are of several rounds: {saved[:4]}")
    elif done:
        found.append("the parameters are gone")
    log = folder / "rounds.log"
    lines = log.read_text().splitlines() if log.exists() else []
    known = {LINE % number for number in range(max(done, default=0) + 10**4)}
    if sum(line not in known for line in lines) > kills:
        found.append("more lines of the log are damaged than processes were killed")
    missing = {LINE % number for number in done} - set(lines)
    if missing:
        found.append(f"the log lost {len(missing)} rounds")
    return found


def trials_of(log: pathlib.Path, tuner: str) -> tuple[list[str], int]:
    """What each record scheduled, in order, and the number of lines that are not records."""
    from compiler.errors import RecordError

    scheduled = _of_autotvm if tuner == "autotvm" else _of_auto_scheduler
    found, damaged = [], 0
    for line in log.read_text().splitlines() if log.exists() else ():
        try:
            found.append(scheduled(line))
        except RecordError:
            damaged += 1
    return found, damaged


def _of_auto_scheduler(line: str) -> str:
    from compiler.records.auto_scheduler.record import parse_line

    row = json.loads(parse_line(line).to_line())
    kept = {name: row.get(name) for name in ("workload", "trace", "template", "untuned")}
    kept["workload"] = kept["workload"]["key"]
    return json.dumps(kept, sort_keys=True)


def _of_autotvm(line: str) -> str:
    from compiler.autotvm import decode
    from compiler.autotvm.best_records import measure_str_key

    return measure_str_key(decode(line)[0])


def find_remains(
    number: int,
    folders: list[pathlib.Path],
    done: list[int],
    kills: int,
    trials: dict[str, list[str]],
    send: Send,
) -> None:
    """One round, which finds what killed processes left, and a look at what there is then."""
    work(folders[0], number, 1, "", send)
    look(folders, [*done, number], kills, trials, send)


def look(
    folders: list[pathlib.Path],
    done: list[int],
    kills: int,
    trials: dict[str, list[str]],
    send: Send,
) -> None:
    """Send what is wrong with the files, and the trials of the tuning logs.

    The library of the round before the last is built once more, from what the cache has.
    """
    found = [f"left behind: {path}" for path in leftovers(*folders)]
    found += faults(folders[0], done, kills)
    for number in sorted(done)[-2:-1]:
        if value(build(number)) != [number]:
            found.append(f"the library of round {number} that the cache has is wrong")
    now = {}
    for tuner in TUNERS:
        now[tuner], damaged = trials_of(folders[0] / f"{tuner}.json", tuner)
        lost = set(trials.get(tuner, ())) - set(now[tuner])
        doubled = len(now[tuner]) - len(set(now[tuner]))
        if lost or doubled or damaged > kills:
            found.append(f"{tuner}: {len(lost)} lost, {doubled} doubled, {damaged} damaged")
    send((found, now))


def leftovers(*folders: pathlib.Path) -> list[str]:
    """Drafts and temporary files."""
    return [
        str(path)
        for folder in folders
        for path in folder.rglob("*")
        if path.name.endswith((".tmp", ".part")) or path.name.startswith((".baton", "tmp"))
    ]


# ---------------------------------------------------------------- the kills


def start(function: Callable[..., None], *arguments: Any) -> tuple[Any, Any]:
    """A process that runs `function(*arguments, send)`, and what it sends."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=function, args=(*arguments, theirs.send))
    process.start()
    theirs.close()
    return process, ours


def received(pipe: Any) -> Iterable[Any]:
    """What a process sends, until it has ended."""
    try:
        while True:
            yield pipe.recv()
    except (EOFError, OSError):
        pass


class Kills:
    """Processes that are killed one after another, and what is known of their files."""

    def __init__(self, folders: list[pathlib.Path], rng: random.Random, tuning: float):
        self.folders, self.rng = folders, rng
        self.done: list[int] = []
        self.trials: dict[str, list[str]] = {}
        self.lengths = dict.fromkeys(TUNERS, tuning)
        """Seconds that each phase took when it was last seen whole; a tuner, after a record."""
        self.counts: Counter[str] = Counter()

    def kill(self) -> list[str]:
        """One process is killed, a second finds its remains and looks at the files."""
        [phase] = self.rng.choices(list(PHASES), list(PHASES.values()))
        first = max(self.done, default=0) + 1
        tuner = phase if phase in TUNERS else ""
        process, pipe = start(work, self.folders[0], first, None, tuner)
        self._follow(pipe, until=phase)
        if tuner:
            self._wait_for_records(process, tuner, self.rng.randrange(12))
        time.sleep(self.rng.uniform(0, self.lengths.get(phase, 0.1)))
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        self.counts[phase] += 1
        self._follow(pipe)
        # Two rounds further: the one that was killed may have written its line.
        number, kills = max(self.done, default=first) + 2, self.counts.total()
        arguments = (self.folders, self.done, kills, self.trials)
        process, pipe = start(find_remains, number, *arguments)
        result = self._follow(pipe)
        process.join()
        if process.exitcode:
            return [f"the process that finds the remains ended with {process.exitcode}"]
        found, self.trials = result
        return list(found)

    def _wait_for_records(self, process: Any, tuner: str, count: int) -> None:
        """Wait until a tuner has written some records, or two minutes."""
        log, began = self.folders[0] / f"{tuner}.json", time.monotonic()
        before = len(self.trials.get(tuner, ()))
        while process.is_alive() and time.monotonic() < began + 120:
            if log.exists() and log.read_bytes().count(b"\n") >= before + count:
                break
            time.sleep(0.1)

    def _follow(self, pipe: Any, until: str = "") -> Any:
        """Take in what a process sends, up to the beginning of a phase; returns the last."""
        last, began, message = "", 0.0, None
        for message in received(pipe):
            now = time.monotonic()
            if last and until:
                self.lengths[last] = now - began
            last, began = message if isinstance(message, str) else "", now
            if isinstance(message, int):
                self.done.append(message)
            if until and message == until:
                break
        return message


def main() -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument(
        "--seconds", type=float, default=3.0, help="that a tuning run lives longer at most"
    )
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        os.environ["XDG_CACHE_HOME"] = name
        build(0)  # forked processes have what it imports, but have not seen their folders
        folders = [pathlib.Path(name) / part for part in ("out", "temporary", "cache")]
        for each in folders:
            each.mkdir()
        os.environ.update(TMPDIR=str(folders[1]), XDG_CACHE_HOME=str(folders[2]))
        tempfile.tempdir = None  # what it had looked up
        kills = Kills(folders, random.Random(args.seed), args.seconds)
        for number in range(1, args.kills + 1):
            found = kills.kill()
            trials = {tuner: len(those) for tuner, those in kills.trials.items()}
            print(
                f"kill {number}: {dict(kills.counts)}, {len(kills.done)} rounds, {trials} trials, "
                f"{len(found)} faults",
                flush=True,
            )
            if found:
                print("\n".join(found))
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
