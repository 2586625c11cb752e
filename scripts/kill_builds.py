#!/usr/bin/env python3
"""Kill builds, exports and writes of files at random moments, and look for what is lost or half.

    scripts/kill_builds.py --kills 100

Each process builds a small network with the kernel cache on, exports the library, saves its weights
and appends to a log, again and again with new weights, until SIGKILL. After each kill the files
must be whole: a library computes what one set of weights computes, a parameter file has one set,
and of the log at most the line that was cut off is not a record. What the killed process left
behind must be gone after the next one made something in the same places.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import pathlib
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
WIDTH = 64
LINE = '{"round": %d}'

Send = Callable[[Any], None]


def work(folder: pathlib.Path, first: int, rounds: int | None, send: Send) -> None:
    """Rounds of a build, an export, and both kinds of writes; without end if `rounds` is None.

    The number of each is sent when it is done.
    """
    import tvm
    from tvm import relax

    from compiler import relay
    from compiler.records.log_file import append_lines
    from compiler.symbol import save_params

    number = first
    while rounds is None or number < first + rounds:
        weights = np.full((WIDTH, WIDTH), number % 100, "float32")
        builder = relax.BlockBuilder()
        x = relax.Var("x", relax.TensorType((1, WIDTH), "float32"))
        with builder.function("main", [x]):
            with builder.dataflow():
                product = relax.op.matmul(x, relax.const(weights))
                out = builder.emit_output(builder.emit(product))
            builder.emit_func_output(out)
        with tvm.transform.PassContext(opt_level=3):
            library = relay.build(builder.get(), "llvm")
        library.export_library(folder / "library.so")
        save_params(folder / "weights.params", {"w": weights})
        append_lines(folder / "rounds.log", [LINE % number])
        send(number)
        number += 1


def faults(folder: pathlib.Path, done: list[int], kills: int) -> list[str]:
    """What is wrong with the files; `done` are the rounds that were known to be finished."""
    import tvm

    from compiler.runtime import load_module
    from compiler.symbol import load_params

    found = []
    if (folder / "library.so").exists():
        executor = load_module(folder / "library.so")["default"](tvm.cpu())
        executor.set_input("x", np.ones((1, WIDTH), "float32"))
        executor.run()
        result = executor.get_output(0).numpy()
        if np.unique(result).size != 1 or result.flat[0] % WIDTH:
            found.append(f"the library computes {np.unique(result)[:4]}")
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
    known = {LINE % number for number in range(10**6 if not done else max(done) + 3)}
    if sum(line not in known for line in lines) > kills:
        found.append("more lines of the log are damaged than processes were killed")
    missing = {LINE % number for number in done} - set(lines)
    if missing:
        found.append(f"the log lost {len(missing)} rounds")
    return found


def look(folders: list[pathlib.Path], done: list[int], kills: int, send: Send) -> None:
    """Send what is wrong with the files, and what lies there that should not."""
    left = [f"left behind: {path}" for path in leftovers(*folders)]
    send(faults(folders[0], done, kills) + left)


def leftovers(*folders: pathlib.Path) -> list[str]:
    """Drafts and temporary files."""
    return [
        str(path)
        for folder in folders
        for path in folder.rglob("*")
        if path.name.endswith((".tmp", ".part")) or path.name.startswith((".baton", "tmp"))
    ]


def start(function: Callable[..., None], *arguments: Any) -> tuple[Any, Any]:
    """A process that runs `function(*arguments, send)`, and what it sends."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=function, args=(*arguments, theirs.send))
    process.start()
    theirs.close()
    return process, ours


def sent(pipe: Any) -> list[Any]:
    """What is left in the pipe of a process that has ended."""
    found = []
    try:
        while pipe.poll():
            found.append(pipe.recv())
    except (EOFError, OSError):
        pass
    return found


def kill_and_look(
    rng: random.Random, seconds: float, folders: list[pathlib.Path], done: list[int], killed: int
) -> list[str]:
    """One process is killed, a second finds its remains, a third looks at the files."""
    first = max(done, default=0) + 1
    process, pipe = start(work, folders[0], first, None)
    done.append(pipe.recv())
    time.sleep(rng.uniform(0, seconds))
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    done += sent(pipe)
    for function, arguments in (
        (work, (folders[0], max(done) + 2, 1)),
        (look, (folders, done, killed)),
    ):
        process, pipe = start(function, *arguments)
        result = pipe.recv()
        process.join()
        if process.exitcode:
            return [f"{function.__name__} ended with {process.exitcode}"]
        if function is work:
            done.append(result)
    return list(result)


def main() -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=2.0, help="longest life after a round")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as name:
        folders = [pathlib.Path(name) / part for part in ("out", "temporary", "cache")]
        for each in folders:
            each.mkdir()
        os.environ.update(TMPDIR=str(folders[1]), XDG_CACHE_HOME=str(folders[2]))
        tempfile.tempdir = None  # what it had looked up
        sys.path.insert(0, str(ROOT))
        import compiler.lowering.build  # noqa: F401  Forked processes have it then.

        done: list[int] = []
        for killed in range(1, args.kills + 1):
            found = kill_and_look(rng, args.seconds, folders, done, killed)
            print(f"kill {killed}: {len(done)} rounds, {len(found)} faults", flush=True)
            if found:
                print("\n".join(found))
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
