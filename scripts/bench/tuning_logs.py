#!/usr/bin/env python3
"""Measure how fast and how large a big tuning log opens, and how long a look-up takes.

    scripts/bench/tuning_logs.py --records 1000000 --kind ansor

writes a log in which every record has a workload of its own, or as many as --workloads says, opens
it in a fresh process, and looks workloads up. Kinds are "autotvm", "ansor" (TVM's old
auto_scheduler) and "auto_scheduler" (Baton's own).
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

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOOKUPS = 2000
TARGET = "llvm -keys=cpu -mcpu=skylake-avx512"
ANSOR_TARGET = "llvm -keys=cpu -mcpu=znver4 -num-cores=2"


def workload(number: int) -> list[object]:
    """Arguments of the `number`-th workload of conv2d_NCHWc.x86; all are different."""
    size, channels = 8 + number % 97, 16 + number // 97
    data = ["TENSOR", [1, channels, size, size], "float32"]
    weight = ["TENSOR", [64, channels, 3, 3], "float32"]
    return [data, weight, [1, 1], [1, 1, 1, 1], [1, 1], "NCHW", "NCHW", "float32"]


def ansor_key(number: int) -> tuple[str, tuple[int, ...]]:
    """Hash and extents of the `number`-th task of Ansor's; all are different."""
    size, channels = 8 + number % 97, 16 + number // 97
    return f"{number:032x}", (1, size, size, channels, 3, 3, channels, 64, 1, size, size, 64)


def write_ansor_log(path: pathlib.Path, records: int, workloads: int) -> None:
    """Write a log of so many records, as TVM 0.18's auto_scheduler lays them out."""
    rng = random.Random(0)
    steps = [["CHW", 3, "local"]]
    steps += [["SP", 3, axis * 4, 64, [rng.choice((1, 2, 4)), 1, 8], 1] for axis in range(4)]
    steps += [["RE", 3, list(range(16))], ["AN", 3, 0, 3], ["PR", 3, 0, "auto_unroll_max_step$64"]]
    with path.open("w") as log:
        for number in range(records):
            name, dims = ansor_key(number % workloads)
            shapes = [list(dims[:4]), list(dims[4:8]), list(dims[8:])]
            hardware = [1, 64, 64, 0, 0, 0, 0, 0]
            task = [json.dumps([name, *shapes]), ANSOR_TARGET, hardware, "", 2, []]
            result = [[rng.uniform(1e-5, 1e-2)], 0, 1.5, 1600000000 + number]
            log.write(json.dumps({"i": [task, [[], steps]], "r": result, "v": "v0.6"}) + "\n")


def own_key(number: int) -> str:
    """Key of the `number`-th workload in Baton's form; all are different."""
    return f"{number % 50:016x}.{number:016x}.1x64x56x56,64x64x3x3,1x64x56x56"


def write_own_log(path: pathlib.Path, records: int, workloads: int) -> None:
    """Write a log of so many records of Baton's auto_scheduler."""
    rng = random.Random(0)
    instructions = [["SamplePerfectTile", ["l1"], [4, 16], [f"v{at}"]] for at in range(12)]
    decisions = [[at, [1, 2, 4, 8]] for at in range(12)]
    target = {"kind": "llvm", "mcpu": "znver5", "keys": ["cpu"]}
    with path.open("w") as log:
        for number in range(records):
            row = {
                "v": 1, "kind": "auto_scheduler", "workload": {"key": own_key(number % workloads)},
                "target": target, "costs": [rng.uniform(1e-5, 1e-2)], "error": 0,
                "timestamp": 1.7e9 + number, "trace": [instructions, decisions],
            }  # fmt: skip
            log.write(json.dumps(row, separators=(",", ":")) + "\n")


def write_log(path: pathlib.Path, records: int, workloads: int) -> None:
    """Write a log of so many records, as TVM 0.18's AutoTVM lays them out."""
    rng = random.Random(0)
    with path.open("w") as log:
        for number in range(records):
            entity = [["tile_ic", "sp", [-1, rng.choice((1, 2, 4, 8))]],
                      ["tile_oc", "sp", [-1, rng.choice((8, 16, 32))]],
                      ["tile_ow", "sp", [-1, rng.choice((1, 7, 14))]],
                      ["unroll_kw", "ot", rng.random() < 0.5]]  # fmt: skip
            row = {
                "input": [TARGET, "conv2d_NCHWc.x86", workload(number % workloads), {}],
                "config": {"index": number, "code_hash": None, "entity": entity},
                "result": [[rng.uniform(1e-5, 1e-2)], 0, 1.5, 1.6e9 + number],
                "version": 0.2,
                "tvm_version": "0.18.0",
            }
            log.write(json.dumps(row) + "\n")


def open_log(path: pathlib.Path, workloads: int, kind: str) -> dict[str, float]:
    """Seconds and GiB of opening the log in this process, and seconds of one look-up."""
    from compiler import auto_scheduler, autotvm
    from compiler.records.ansor.record import WorkloadKey
    from compiler.records.log_target import log_target

    context = autotvm if kind == "autotvm" else auto_scheduler
    target = log_target(TARGET)
    before = _peak()
    start, cpu = time.perf_counter(), time.process_time()
    history = context.ApplyHistoryBest(path)
    opened, busy = time.perf_counter() - start, time.process_time() - cpu
    rng = random.Random(1)
    asked = [rng.randrange(workloads) for _ in range(LOOKUPS)]
    start = time.perf_counter()
    if kind == "autotvm":
        found = [history.query(target, ("conv2d_NCHWc.x86", *workload(each))) for each in asked]
    elif kind == "ansor":
        keys = [WorkloadKey(*ansor_key(each)) for each in asked]
        found = [next(history.find_ansor(target, key), None) for key in keys]
    else:
        found = [history.query(target, own_key(each)) for each in asked]
    looked = (time.perf_counter() - start) / LOOKUPS
    assert all(each is not None for each in found), "a workload of the log was not found"
    return {
        "open_s": opened,
        "open_cpu_s": busy,
        "gib": _peak(),
        "gib_before": before,
        "lookup_us": looked * 1e6,
    }


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


WRITERS = {"autotvm": write_log, "ansor": write_ansor_log, "auto_scheduler": write_own_log}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--workloads", type=int, help="that the records are of (all differ)")
    parser.add_argument("--kind", choices=WRITERS, default="autotvm")
    parser.add_argument("--log", type=pathlib.Path, help="a log that an earlier run wrote")
    parser.add_argument("--keep", type=pathlib.Path, help="where to leave the log")
    parser.add_argument("--in-this-process", action="store_true", help="open --log here")
    args = parser.parse_args()
    workloads = args.workloads or args.records
    if args.in_this_process:
        print(json.dumps(open_log(args.log, workloads, args.kind)))
        return
    with tempfile.TemporaryDirectory() as folder:
        log = args.log or args.keep or pathlib.Path(folder) / "million.log"
        if args.log is None:
            WRITERS[args.kind](log, args.records, workloads)
        command = [
            sys.executable,
            "-m",
            "scripts.bench.tuning_logs",
            "--in-this-process",
            "--log",
            str(log),
        ]
        command += ["--workloads", str(workloads), "--kind", args.kind]
        found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    print(
        f"{args.records} records: opened in {found['open_s']:.2f} s "
        f"({found['open_cpu_s']:.2f} s of one core), {found['gib']:.2f} GiB in all "
        f"({found['gib_before']:.2f} GiB before), {found['lookup_us']:.0f} us a look-up"
    )


if __name__ == "__main__":
    main()
