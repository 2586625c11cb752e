#!/usr/bin/env python3
"""How long `baton compile` takes, from the start of the process to its end: cold, then warm.

    scripts/dev/measure_builds.py models/*.onnx --rounds 3

Cold is with empty caches; warm is the same command again, in a new process, with what the cold one
left. Prints the median of each and of `baton compile --help`, which only imports.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def seconds(arguments: list[str], caches: pathlib.Path) -> float:
    """Of one command in a process of its own, with its caches below a folder."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "XDG_CACHE_HOME": str(caches),
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # users have their modules compiled already
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "compiler", *arguments],
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return time.perf_counter() - start


def main() -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        base = pathlib.Path(folder)
        bare = [seconds(["compile", "--help"], base / "none") for _ in range(args.rounds)]
        print(f"{'compile --help':20s} {statistics.median(bare):6.2f} s")
        print(f"{'model':20s} {'cold':>8s} {'warm':>8s}")
        for model in args.models:
            cold, warm = [], []
            for index in range(args.rounds):
                caches = base / f"{model.stem}-{index}"
                command = ["compile", str(model), "-o", str(base / "library.so")]
                cold.append(seconds(command, caches))
                warm.append(seconds(command, caches))
            times = f"{statistics.median(cold):6.2f} s {statistics.median(warm):6.2f} s"
            print(f"{model.stem:20s} {times}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
