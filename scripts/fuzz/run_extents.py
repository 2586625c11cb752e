#!/usr/bin/env python3
"""Every ONNX operator with every axis of its inputs at extents 0 and 1, against onnxruntime.

    python -m scripts.fuzz.run_extents --cases 2                  # two cases of each operator
    python -m scripts.fuzz.run_extents --operators CumSum Pad     # only these
    python -m scripts.fuzz.run_extents --operators Pad --first 7 --cases 1 --modes open

Every axis is static, and dynamic in one build that runs at 0, 1 and an ordinary extent. Workers
have guard pages around TVM's tensors and glibc's heap checks. The exit status is 1 if there are
findings. docs/fuzzing.md says how to read them.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

from scripts.fuzz import extents


def main() -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--operators", nargs="*", help="only these operators")
    parser.add_argument("--cases", type=int, default=2, help="cases of each operator")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seconds", type=float, help="for how long")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes")
    parser.add_argument("--limit", type=float, default=120, help="CPU seconds until a step hangs")
    parser.add_argument("--level", type=int, default=3, help="opt_level")
    parser.add_argument("--modes", nargs="*", default=[extents.STATIC, extents.OPEN])
    args = parser.parse_args()
    if extents.GUARDED not in os.environ:  # the loader reads LD_PRELOAD when a process starts
        with tempfile.TemporaryDirectory(prefix="guard-") as folder:
            env = {**os.environ, **extents.guarded(pathlib.Path(folder))}
            return subprocess.run(
                [sys.executable, "-m", "scripts.fuzz.run_extents", *sys.argv[1:]],
                env=env,
                check=False,
            ).returncode
    names = {**vars(args), "modes": tuple(args.modes)}
    names["operators"] = tuple(args.operators) if args.operators else None
    return extents.run(extents.Plan(**names))


if __name__ == "__main__":
    sys.exit(main())
