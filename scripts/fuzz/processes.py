#!/usr/bin/env python3
"""Libraries that are replaced while they are loaded, and processes that fork while sessions run.

    python -m scripts.fuzz.processes --seconds 600 --seed 1

Each round writes two libraries whose results tell which code and which weights they have, and then
does at random: replace the file by the other one while threads load it; fork while threads run
requests, and run requests in the child; make requests in callbacks of requests; write to results.
A round has to end within the limit with the numbers of one of the two libraries. The exit status is
1 if one did not.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm

from compiler import relay
from compiler.runtime import load_module

SIZE = 4096
X = np.full(SIZE, 10, "float32")
RIGHT = (12.0, 50.0)
"""10 + 2 and 10 * 5; 10 + 5 and 10 * 2 are code of one library with weights of the other."""


def libraries(folder: pathlib.Path) -> list[pathlib.Path]:
    """x + 2 and x * 5, each also with a result that is a constant."""
    paths = []
    for name, operator, value in (("sum", relay.add, 2.0), ("product", relay.multiply, 5.0)):
        x = relay.var("x", shape=(SIZE,), dtype="float32")
        weight = relay.const(np.full(SIZE, value, "float32"))
        body = relay.Tuple([operator(x, weight), weight])
        library = relay.build(tvm.IRModule.from_expr(relay.Function([x], body)), "llvm")
        paths.append(folder / f"{name}.so")
        library.export_library(paths[-1])
    return paths


def check(session: Any) -> float:
    """Run a request, spoil its results, and return what it computed."""
    computed, constant = session.run({"x": X}).values()
    values = set(computed.tolist())
    if len(values) != 1 or not values <= set(RIGHT):
        raise AssertionError(f"code and weights are not of one library: {sorted(values)}")
    value = values.pop()
    if set(constant.tolist()) != {2.0 if value == RIGHT[0] else 5.0}:
        raise AssertionError("a result that was written to has changed the weights")
    constant[:] = np.nan
    computed[:] = np.nan
    return float(value)


def replace_while_loading(paths: list[pathlib.Path], rng: random.Random) -> None:
    live = paths[0].with_name("live.so")
    shutil.copy(paths[0], live)
    stop = threading.Event()

    def swap() -> None:
        number = 0
        while not stop.is_set():
            draft = live.with_suffix(".draft")
            shutil.copy(paths[number % 2], draft)
            os.replace(draft, live)
            number += 1

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for _ in range(rng.randrange(1, 12)):
            check(load_module(live).session(num_threads=1))
    finally:
        stop.set()
        swapper.join()


def fork_while_running(paths: list[pathlib.Path], rng: random.Random) -> None:
    sessions = [load_module(path).session(num_threads=rng.choice((1, 2))) for path in paths]
    stop = threading.Event()

    def work(session: Any) -> None:
        while not stop.is_set():
            check(session)

    workers = [threading.Thread(target=work, args=(rng.choice(sessions),)) for _ in range(3)]
    for worker in workers:
        worker.start()
    try:
        for _ in range(rng.randrange(1, 6)):
            time.sleep(rng.uniform(0, 0.02))
            child = os.fork()
            if child == 0:
                signal.alarm(30)
                for session in sessions:
                    check(session)
                os._exit(0)
            status = os.waitpid(child, 0)[1]
            if status:
                raise AssertionError(f"a forked child ended with the status {status}")
    finally:
        stop.set()
        for worker in workers:
            worker.join()


def ask_in_callbacks(paths: list[pathlib.Path], rng: random.Random) -> None:
    session = load_module(rng.choice(paths)).session(num_threads=1, parallel=rng.randrange(1, 3))
    count, answered = rng.randrange(1, 40), threading.Semaphore(0)
    failures: list[BaseException] = []

    def again(_: Any) -> None:
        try:
            check(session)
        except AssertionError as error:
            failures.append(error)
        answered.release()

    for _ in range(count):
        session.run_async({"x": X}).add_done_callback(again)
    for _ in range(count):
        if not answered.acquire(timeout=30):
            raise AssertionError("a callback that makes a request hangs")
    if failures:
        raise failures[0]


ROUNDS: tuple[Callable[[list[pathlib.Path], random.Random], None], ...] = (
    replace_while_loading,
    fork_while_running,
    ask_in_callbacks,
)


def main() -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--rounds", type=int, help="how many rounds at most")
    parser.add_argument("--limit", type=int, default=120, help="seconds until a round hangs")
    args = parser.parse_args()
    rng, begin, done = random.Random(args.seed), time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="processes-") as name:
        paths = libraries(pathlib.Path(name))
        while time.monotonic() - begin < args.seconds and done != args.rounds:
            kind = rng.choice(ROUNDS)
            signal.alarm(args.limit)  # a hang ends the process, which is a failure too
            try:
                kind(paths, rng)
            except Exception as error:
                print(f"round {done} of seed {args.seed}, {kind.__name__}: {error}", flush=True)
                return 1
            done += 1
        signal.alarm(0)
    print(f"{done} rounds in {time.monotonic() - begin:.0f} s (--seed {args.seed})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
