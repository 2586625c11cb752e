#!/usr/bin/env python3
"""Measure how fast and how large a big AutoTVM log opens, and how long a look-up takes.

    scripts/benchmark_logs.py --records 1000000

writes a log in which every record has a workload of its own, opens it in a fresh process, and
looks workloads up.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

LOOKUPS = 2000
TARGET = "llvm -keys=cpu -mcpu=skylake-avx512"


def workload(number: int) -> list[object]:
    """Arguments of the `number`-th workload of conv2d_NCHWc.x86; all are different."""
    size, channels = 8 + number % 97, 16 + number // 97
    data = ["TENSOR", [1, channels, size, size], "float32"]
    weight = ["TENSOR", [64, channels, 3, 3], "float32"]
    return [data, weight, [1, 1], [1, 1, 1, 1], [1, 1], "NCHW", "NCHW", "float32"]


def write_log(path: pathlib.Path, records: int) -> None:
    """Write a log of so many records, as TVM 0.18 lays them out."""
    rng = random.Random(0)
    with path.open("w") as log:
        for number in range(records):
            entity = [["tile_ic", "sp", [-1, rng.choice((1, 2, 4, 8))]],
                      ["tile_oc", "sp", [-1, rng.choice((8, 16, 32))]],
                      ["tile_ow", "sp", [-1, rng.choice((1, 7, 14))]],
                      ["unroll_kw", "ot", rng.random() < 0.5]]  # fmt: skip
            row = {
                "input": [TARGET, "conv2d_NCHWc.x86", workload(number), {}],
                "config": {"index": number, "code_hash": None, "entity": entity},
                "result": [[rng.uniform(1e-5, 1e-2)], 0, 1.5, 1.6e9 + number],
                "version": 0.2,
                "tvm_version": "0.18.0",
            }
            log.write(json.dumps(row) + "\n")


def open_log(path: pathlib.Path, records: int) -> dict[str, float]:
    """Seconds and GiB of opening the log in this process, and seconds of one look-up."""
    from compiler.autotvm.dispatcher import ApplyHistoryBest
    from compiler.autotvm.log_target import log_target

    target = log_target(TARGET)
    before = _peak()
    start, cpu = time.perf_counter(), time.process_time()
    history = ApplyHistoryBest(path)
    opened, busy = time.perf_counter() - start, time.process_time() - cpu
    rng = random.Random(1)
    asked = [("conv2d_NCHWc.x86", *workload(rng.randrange(records))) for _ in range(LOOKUPS)]
    start = time.perf_counter()
    found = [history.query(target, each) for each in asked]
    looked = (time.perf_counter() - start) / LOOKUPS
    assert all(config is not None for config in found), "a workload of the log was not found"
    return {
        "open_s": opened,
        "open_cpu_s": busy,
        "gib": _peak(),
        "gib_before": before,
        "lookup_us": looked * 1e6,
    }


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--log", type=pathlib.Path, help="a log that an earlier run wrote")
    parser.add_argument("--keep", type=pathlib.Path, help="where to leave the log")
    parser.add_argument("--in-this-process", action="store_true", help="open --log here")
    args = parser.parse_args()
    if args.in_this_process:
        print(json.dumps(open_log(args.log, args.records)))
        return
    with tempfile.TemporaryDirectory() as folder:
        log = args.log or args.keep or pathlib.Path(folder) / "million.log"
        if args.log is None:
            write_log(log, args.records)
        command = [sys.executable, __file__, "--in-this-process", "--log", str(log)]
        command += ["--records", str(args.records)]
        found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    print(
        f"{args.records} records: opened in {found['open_s']:.2f} s "
        f"({found['open_cpu_s']:.2f} s of one core), {found['gib']:.2f} GiB in all "
        f"({found['gib_before']:.2f} GiB before), {found['lookup_us']:.0f} us a look-up"
    )


if __name__ == "__main__":
    main()
