#!/usr/bin/env python3
"""Random ONNX models against onnxruntime: wrong results, crashes, hangs and slow builds.

    python -m scripts.fuzz.run_models --seconds 600              # as many cases as fit
    python -m scripts.fuzz.run_models --seed 3 --first 120 --graphs 1   # one case again
    python -m scripts.fuzz.run_models --again findings/003_wrong_Add    # a finding again

Every case is built at two levels and run on plain and hostile inputs in a worker process.
Failures are made small and written below `--findings`, each with a test. docs/fuzzing.md says how
to read them. The exit status is 1 if there are any.
"""

from __future__ import annotations

import argparse
import pathlib
import sys

from scripts.fuzz import campaign


def main() -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="of the run")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--graphs", type=int, help="how many cases")
    parser.add_argument("--seconds", type=float, help="for how long")
    parser.add_argument("--nodes", type=int, default=6, help="operators of the largest graph")
    parser.add_argument("--operators", nargs="*", help="only these operators")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes")
    parser.add_argument("--limit", type=float, default=120, help="CPU seconds until a step hangs")
    parser.add_argument("--levels", type=int, nargs="*", default=[0, 3], help="opt_level")
    parser.add_argument("--targets", nargs="*", help="target strings, of which each case has one")
    parser.add_argument("--findings", type=pathlib.Path, default=pathlib.Path("build/fuzz"))
    parser.add_argument("--again", type=pathlib.Path, help="a finding's folder")
    args = parser.parse_args()
    if args.again:
        return campaign.again(args.again, args.limit)
    if args.graphs is None and args.seconds is None:
        args.seconds = 600.0
    return campaign.run(campaign.Plan.of(args))


if __name__ == "__main__":
    sys.exit(main())
