#!/usr/bin/env python3
"""How long `baton compile` takes, from the start of the process to its end: cold, then warm.

    scripts/bench/builds.py models/*.onnx --rounds 3

Cold is with empty caches; warm is the same command again, in a new process, with what the cold one
left. Prints the median of each and of `baton compile --help`, which only imports: the time that
passed, and the time that cores worked for it, which other work on the machine changes less.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def seconds(arguments: list[str], caches: pathlib.Path) -> tuple[float, float]:
    """Of one command in a process of its own, with its caches below a folder: passed and worked."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "XDG_CACHE_HOME": str(caches),
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # users have their modules compiled already
    start, before = time.perf_counter(), worked()
    subprocess.run(
        [sys.executable, "-m", "compiler", *arguments],
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return time.perf_counter() - start, worked() - before


def worked() -> float:
    """Seconds that cores worked for processes that this one has waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def shown(times: list[tuple[float, float]]) -> str:
    """Medians of both."""
    passed, busy = (statistics.median(each) for each in zip(*times, strict=True))
    return f"{passed:6.2f} s {busy:6.2f} s"


def main() -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        base = pathlib.Path(folder)
        bare = [seconds(["compile", "--help"], base / "none") for _ in range(args.rounds)]
        print(f"{'':20s} {'cold':>8s} {'worked':>8s} {'warm':>8s} {'worked':>8s}")
        print(f"{'compile --help':20s} {'':17s} {shown(bare)}")
        for model in args.models:
            cold, warm = [], []
            for index in range(args.rounds):
                caches = base / f"{model.stem}-{index}"
                command = ["compile", str(model), "-o", str(base / "library.so")]
                cold.append(seconds(command, caches))
                warm.append(seconds(command, caches))
            print(f"{model.stem:20s} {shown(cold)} {shown(warm)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
