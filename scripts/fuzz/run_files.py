#!/usr/bin/env python3
"""Damaged logs, libraries, models, parameters and cache entries: an error of Baton's, or all right.

    python -m scripts.fuzz.run_files --seconds 600                    # as many files as fit
    python -m scripts.fuzz.run_files --count 100000 --kinds symbol onnx
    python -m scripts.fuzz.run_files --guided "autotvm log" --seconds 600  # with atheris
    python -m scripts.fuzz.run_files --again build/fuzz/files/symbol-0-17

Files that end in anything but an error of `compiler.errors` are written below `--findings`. The
exit status is 1 if there are any. docs/fuzzing.md says more.
"""

from __future__ import annotations

import argparse
import pathlib
import sys

from scripts.fuzz import files
from scripts.fuzz.readers import READERS


def main() -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="of the run")
    parser.add_argument("--first", type=int, default=0, help="number of each kind's first file")
    parser.add_argument("--count", type=int, help="how many files in all")
    parser.add_argument("--seconds", type=float, help="for how long")
    parser.add_argument("--kinds", nargs="*", choices=READERS, default=list(READERS))
    parser.add_argument("--limit", type=float, default=60, help="seconds until a file hangs")
    parser.add_argument("--findings", type=pathlib.Path, default=pathlib.Path("build/fuzz/files"))
    parser.add_argument("--guided", choices=READERS, help="let coverage guide the damage")
    parser.add_argument("--again", type=pathlib.Path, help="a file of the findings")
    args = parser.parse_args()
    if args.again:
        files.again(args.again)
        return 0
    if args.count is None and args.seconds is None:
        args.seconds = 600.0
    if args.guided:
        files.guided(args.guided, args.seconds or 600.0, args.findings, args.seed)
    tallies = files.run(
        args.kinds, args.findings, seed=args.seed, first=args.first, count=args.count,
        seconds=args.seconds, limit=args.limit,
    )  # fmt: skip
    return 1 if any(tally.causes for tally in tallies.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
