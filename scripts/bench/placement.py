#!/usr/bin/env python3
"""Measure placements of ONNX models on several engines against the best engine alone.

    python -m scripts.bench.placement MODEL.onnx [...] --threads 1 2

`placement="fastest"` times the candidates in turn; with `--again` a second run times the chosen
placement again. Prints a row of a table for each model: the engine that runs best alone, the chosen
placement, its time relative to that engine, the milliseconds of every engine, the seconds that the
choice took, and what failed.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from compiler import relay
from compiler.partition import Fastest, partition_with_report
from compiler.records.placement_log import PlacementRecord

ENGINES = ("onnxruntime", "openvino", "onednn")


def measure(path: Path, threads: int, engines: Sequence[str], again: bool) -> tuple[float, str]:
    """The ratio of the last run, and the model's row."""
    mod, params = relay.frontend.from_onnx(str(path), freeze_params=False)
    how = Fastest(threads=threads)
    start = time.perf_counter()
    found = partition_with_report(mod, engines, params, placement=how).measured
    chosen, seconds = found[0], time.perf_counter() - start
    if again:
        found = partition_with_report(mod, engines, params, placement=how).measured
    alone = {each.placement[0][1]: each for each in found if len(each.placement) == 1}
    best = min(alone, key=lambda name: alone[name].median)
    timed = [each for each in found if each.placement == chosen.placement]
    ratio = timed[0].median / alone[best].median if timed else math.nan
    times = ", ".join(f"{name} {_milliseconds(each)}" for name, each in sorted(alone.items()))
    place = " ".join(f"{count}:{name}" for count, name in chosen.placement)
    errors = "; ".join(f"{name}: {each.error}" for name, each in alone.items() if each.error)
    cells = path.stem, threads, best, place, f"{ratio:.3f}", times, f"{seconds:.0f}", errors
    return ratio, f"| {' | '.join(map(str, cells))} |"


def _milliseconds(record: PlacementRecord) -> str:
    return f"{1e3 * record.median:.2f}" if record.seconds else "-"


def main() -> None:
    """Read the command line and print the table, and the geometric mean of the ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--threads", nargs="+", type=int, default=[1])
    parser.add_argument("--engines", nargs="+", default=ENGINES)
    parser.add_argument("--again", action="store_true", help="time the chosen placement again")
    arguments = parser.parse_args()
    ratios = []
    for threads in arguments.threads:
        for path in arguments.models:
            ratio, row = measure(path, threads, arguments.engines, arguments.again)
            ratios.append(ratio)
            print(row, flush=True)
    known = [math.log(ratio) for ratio in ratios if not math.isnan(ratio)]
    print(f"geometric mean {math.exp(statistics.mean(known)):.3f} of {len(known)} ratios")


if __name__ == "__main__":
    main()
