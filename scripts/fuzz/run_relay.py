#!/usr/bin/env python3
"""Random Relay programs: builder, text, JSON, executors and partitions have to agree with numpy.

    python -m scripts.fuzz.run_relay --seconds 600
    python -m scripts.fuzz.run_relay --seed 3 --first 120 --count 1     # one program again
    python -m scripts.fuzz.run_relay --models --seconds 600             # partitions of ONNX models

What fails is made small and written below `--findings`. The exit status is 1 if there is any.
"""

from __future__ import annotations

import argparse
import pathlib
import sys

from scripts.fuzz import programs


def main() -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="of the run")
    parser.add_argument("--first", type=int, default=0, help="number of the first program")
    parser.add_argument("--count", type=int, help="how many programs")
    parser.add_argument("--seconds", type=float, help="for how long")
    parser.add_argument("--largest", type=int, default=12, help="calls of the largest program")
    parser.add_argument("--limit", type=float, default=120, help="seconds until a step hangs")
    parser.add_argument("--models", action="store_true", help="partitions of random ONNX models")
    parser.add_argument("--findings", type=pathlib.Path, default=pathlib.Path("build/fuzz/relay"))
    args = parser.parse_args()
    if args.count is None and args.seconds is None:
        args.seconds = 600.0
    counts = programs.run(**vars(args))
    return 1 if any(counts[kind] for kind in programs.FAILED) else 0


if __name__ == "__main__":
    sys.exit(main())
