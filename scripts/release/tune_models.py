#!/usr/bin/env python3
"""Tune several models one after the other, unattended, and say what it gained.

    scripts/release/tune_models.py models/*.onnx --tuner auto_scheduler --folder tuned --hours 6

Each model is tuned by `baton tune` in a process of its own, in its share of the time. An
interrupted run is continued by the same command: logs are gone on with, and models that are done
are not tuned again. The folder gets, for each model, the log, the log of the best, a picture of the
progress, and the results as JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import time
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]


def tune(
    model: pathlib.Path, args: argparse.Namespace, seconds: float | None
) -> dict[str, Any] | None:
    """What `baton tune` found; None if it failed."""
    stem = args.folder / f"{model.stem}.{args.tuner}"
    result = pathlib.Path(f"{stem}.result.json")
    if result.exists():
        return json.loads(result.read_text())
    command = [
        sys.executable, "-m", "compiler", "tune", str(model), "--json",
        "--tuner", args.tuner, "--log", f"{stem}.log", "--svg", f"{stem}.svg",
        "--trials", str(args.trials_per_task), "--threads", str(args.threads),
        "--rounds", str(args.rounds), "--target", args.target,
    ]  # fmt: skip
    if args.limit is not None:
        command += ["--limit", str(args.limit)]
    if seconds is not None:
        command += ["--seconds", f"{max(seconds, 1):.0f}"]
    done = subprocess.run(command, stdout=subprocess.PIPE)
    if done.returncode:
        return None
    found = json.loads(done.stdout)
    partial = result.with_suffix(".part")
    partial.write_text(json.dumps(found, indent=1))
    partial.rename(result)
    return found


def kernels_of(found: dict[str, Any]) -> list[tuple[float, float, int]]:
    """Untuned seconds, seconds of what is used, and calls of each kernel."""
    rows = []
    for kernel in found.get("tasks") or found.get("operators") or ():
        before = kernel.get("untuned_seconds", kernel.get("fallback_seconds"))
        after = kernel["seconds"] if kernel["seconds"] is not None else before
        if before is not None and math.isfinite(before):
            rows.append((before, min(before, after), kernel["calls"]))
    return rows


def show(name: str, found: dict[str, Any]) -> float | None:
    """Print a model's line; its gain."""
    kernels = kernels_of(found)
    gains = [before / after for before, after, _ in kernels]
    mean = statistics.geometric_mean(gains) if gains else math.nan
    faster = sum(gain > 1 for gain in gains)
    line = f"{name:24} {faster:3} of {len(kernels):3} kernels faster ({mean:.2f}x)"
    if not found["milliseconds"]:
        print(line)
        return None
    after = statistics.median(found["milliseconds"])
    before = statistics.median(found["milliseconds_without"])
    print(f"{line}, network {before:9.3f} ms -> {after:9.3f} ms ({before / after:.3f}x)")
    return before / after


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--tuner", choices=("autotvm", "auto_scheduler"), default="auto_scheduler")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("tuned"))
    parser.add_argument("--trials-per-task", type=int, default=64)
    parser.add_argument("--limit", type=int, help="only so many operators, the heaviest ones")
    parser.add_argument("--hours", type=float, help="for the measurements of all models together")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--target", default="llvm")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    end = None if args.hours is None else time.monotonic() + args.hours * 3600
    results, failed = {}, []
    for position, model in enumerate(args.models):
        share = None
        if end is not None:
            share = (end - time.monotonic()) / (len(args.models) - position)
        found = tune(model, args, share)
        if found is None:
            failed.append(model.stem)
        else:
            results[model.stem] = found
    gains = [gain for name, found in results.items() if (gain := show(name, found)) is not None]
    if gains:
        mean = statistics.geometric_mean(gains)
        print(f"geometric mean of {len(gains)} networks: {mean:.3f}x, least {min(gains):.3f}x")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}; the same command tries again")


if __name__ == "__main__":
    main()
