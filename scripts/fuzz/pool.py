"""Worker processes that try cases: they are kept, and replaced when they crash or hang."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import pathlib
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Protocol, TypeVar

import onnx

from .attempt import Config, Event, Feeds, Say, Step, attempt
from .generator import draw

PATIENCE = 4
"""Times a limit of CPU seconds that a step may take on a clock."""
RENEWED_AFTER = 400
"""Tasks of a worker: what leaks does not grow for ever."""


@dataclass(frozen=True)
class Drawn:
    """A case by its number."""

    seed: int
    number: int
    largest: int
    configs: tuple[Config, ...]
    operators: Sequence[str] | None = None
    skip: tuple[str, ...] = ()

    def run(self, say: Say, skip: Sequence[str]) -> Outcome:
        """Draw and try the case."""
        say(Step("draw"))
        case = draw(self.seed, self.number, self.largest, self.operators)
        events = attempt(case.model, case.feeds, self.configs, say, skip)
        return Outcome(events, case.operators, len(case.model.graph.node))


@dataclass(frozen=True)
class Given:
    """A case by its model, serialized, and its inputs."""

    model: bytes
    feeds: Feeds
    configs: tuple[Config, ...]
    skip: tuple[str, ...] = ()

    def run(self, say: Say, skip: Sequence[str]) -> Outcome:
        """Try the case."""
        model = onnx.load_from_string(self.model)
        events = attempt(model, self.feeds, self.configs, say, skip)
        return Outcome(events, (), len(model.graph.node))


class Task(Protocol):
    """What a worker does; it is sent there."""

    @property
    def skip(self) -> tuple[str, ...]:
        """Feeds to leave out."""

    def run(self, say: Say, skip: Sequence[str]) -> Outcome:
        """Do it; `say` is called before each step that may crash or hang."""


@dataclass
class Outcome:
    """Events of a task, and the operators of the case."""

    events: list[Event]
    operators: tuple[str, ...] = ()
    nodes: int = 0


class Worker:
    """One process, forked from this one, which has imported all and run nothing.

    A step hangs after `limit` CPU seconds, or `PATIENCE` times as many on a clock.
    """

    def __init__(self, limit: float):
        self.limit = limit
        self._process: Any = None
        self._tasks = 0

    def run(self, task: Task) -> Outcome:
        """Try a case; a crash or a hang of Baton is its event."""
        skip = list(task.skip)
        while True:
            step, what = Step("draw"), ""
            self._send(task, skip)
            while not what:
                try:
                    if not self._answers():
                        what = "hang"
                        break
                    message = self._pipe.recv()
                except (EOFError, OSError):
                    what = "crash"
                    break
                if isinstance(message, Outcome):
                    return message
                step = message
            reason = self._end(what)
            if step.name == "reference" and step.feed not in skip:
                skip.append(step.feed)  # onnxruntime's own fault: without it
            elif step.name == "draw":
                return Outcome([Event("onnxruntime", f"{what} of a single node {reason}")])
            else:
                return Outcome([Event(what, f"{step.name} {reason}", step.config, step.feed)])

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._end("hang")

    def _answers(self) -> bool:
        """Wait for a message: on a busy machine the worker may have had little of the CPU."""
        before = _cpu_of(self._process.pid)
        for _ in range(PATIENCE):
            if self._pipe.poll(self.limit):
                return True
            if _cpu_of(self._process.pid) - before >= self.limit:
                return False
        return False

    def _send(self, task: Task, skip: Sequence[str]) -> None:
        if self._process is None or self._tasks >= RENEWED_AFTER:
            self.close()
            context = get_context("fork")
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
            self._process.start()
            theirs.close()
            self._tasks = 0
        self._tasks += 1
        self._pipe.send((task, tuple(skip)))

    def _end(self, what: str) -> str:
        if what == "hang":
            self._process.kill()
        self._process.join()
        code = self._process.exitcode
        self._pipe.close()
        self._process = None
        return f"(signal {-code})" if code is not None and code < 0 else f"(exit status {code})"


def _cpu_of(process: int) -> float:
    """CPU seconds of a process so far; 0 where it has ended."""
    try:
        fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def _serve(pipe: Connection) -> None:
    """Answer tasks until the other side closes."""
    logging.disable(logging.ERROR)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    while True:
        try:
            task, skip = pipe.recv()
        except (EOFError, OSError):
            os._exit(0)
        pipe.send(task.run(pipe.send, skip))


Case = TypeVar("Case")


def run_in_workers(
    cases: Sequence[Case],
    one: Callable[[Worker, Case], object],
    *,
    limit: float,
    seconds: float | None = None,
    jobs: int = 1,
) -> None:
    """Call `one` for each case until `seconds` have passed, in `jobs` threads of a worker each."""
    end = time.monotonic() + (float("inf") if seconds is None else seconds)

    def work(share: Sequence[Case]) -> None:
        worker = Worker(limit)
        try:
            for case in share:
                if time.monotonic() >= end:
                    break
                one(worker, case)
        finally:
            worker.close()

    threads = [threading.Thread(target=work, args=(cases[i::jobs],)) for i in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def prepare() -> None:
    """Import what workers need, so that a fork starts at once; no kernel runs in this process."""
    import onnx.reference  # noqa: F401
    import onnxruntime  # noqa: F401

    import compiler.lowering.build
    import compiler.relay
    import compiler.relay.frontend.onnx.graph
    import compiler.runtime.graph_executor  # noqa: F401

    gc.freeze()  # workers need not look through what was imported


@contextlib.contextmanager
def own_environment(cache_bytes: int = 0) -> Iterator[None]:
    """One thread a worker, and an empty kernel cache: by default none, as builds do not repeat."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        threads = before.get("TVM_NUM_THREADS", "1")
        os.environ.update(
            XDG_CACHE_HOME=folder,
            TVM_NUM_THREADS=threads,
            BATON_KERNEL_CACHE_BYTES=str(cache_bytes),
        )
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


def cpu_seconds() -> float:
    """CPU seconds of this process and of the workers that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
