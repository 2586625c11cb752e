#!/usr/bin/env python3
"""Kill a tuning run at random moments, resume it each time, and look for lost or doubled trials.

    scripts/kill_tuning.py --kills 10 --tuner autotvm

Each run is killed with SIGKILL; the next one goes on from the log. At the end every line but the
ones that were cut off must be a record, no trial may stand there twice, and no record that was
there after a kill may be missing later.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

MODULE = """
import numpy as np
from tvm import relax

def module():
    rng = np.random.default_rng(0)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 16, 14, 14), "float32"))
    weight = relax.const(rng.standard_normal((32, 16, 3, 3)).astype("float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            conv = builder.emit(relax.op.nn.conv2d(x, weight, padding=[1, 1]))
            out = builder.emit_output(builder.emit(relax.op.nn.relu(conv)))
        builder.emit_func_output(out)
    return builder.get()
"""
AUTO_SCHEDULER = """
if __name__ == "__main__":
    import sys
    from compiler import auto_scheduler
    log, trials, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    tasks, weights = auto_scheduler.extract_tasks(module(), {}, "llvm")
    tuner = auto_scheduler.TaskScheduler(tasks, weights, load_log_file=log, callbacks=[])
    tuner.tune(auto_scheduler.TuningOptions(
        trials, num_measures_per_round=8, verbose=0,
        runner=auto_scheduler.LocalRunner(number=1, min_repeat_ms=0),
        measure_callbacks=[auto_scheduler.RecordToFile(log)],
    ), search_policy_params={"seed": seed})
"""
AUTOTVM = """
if __name__ == "__main__":
    import os, sys
    import numpy as np
    from compiler import autotvm
    log, trials, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    np.random.seed(seed)
    option = autotvm.measure_option(
        autotvm.LocalBuilder(), autotvm.LocalRunner(number=1, repeat=1, min_repeat_ms=0)
    )
    for task in autotvm.task.extract_from_program(module(), {}, "llvm"):
        tuner = autotvm.tuner.XGBTuner(task, feature_type="knob")
        if os.path.exists(log) and os.path.getsize(log):
            tuner.load_history(autotvm.load_from_file(log))
        tuner.tune(trials, option, callbacks=[autotvm.callback.log_to_file(log)])
"""
PROGRAMS = {"auto_scheduler": MODULE + AUTO_SCHEDULER, "autotvm": MODULE + AUTOTVM}


def trials_of(log: pathlib.Path, tuner: str) -> tuple[list[str], int]:
    """What each record scheduled, in order, and the number of lines that are not records."""
    from compiler.errors import RecordError

    scheduled = _of_autotvm if tuner == "autotvm" else _of_auto_scheduler
    found, damaged = [], 0
    for line in log.read_text().splitlines() if log.exists() else ():
        try:
            found.append(scheduled(line))
        except RecordError:
            damaged += 1
    return found, damaged


def _of_auto_scheduler(line: str) -> str:
    from compiler.records.auto_scheduler.record import parse_line

    row = json.loads(parse_line(line).to_line())
    kept = {name: row.get(name) for name in ("workload", "trace", "template", "untuned")}
    kept["workload"] = kept["workload"]["key"]
    return json.dumps(kept, sort_keys=True)


def _of_autotvm(line: str) -> str:
    from compiler.autotvm import decode
    from compiler.autotvm.picking import measure_str_key

    return measure_str_key(decode(line)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--tuner", choices=PROGRAMS, default="auto_scheduler")
    parser.add_argument("--seconds", type=float, default=30.0, help="longest life of a run")
    parser.add_argument("--log", type=pathlib.Path, help="keep the log there")
    args = parser.parse_args()
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        program, log = pathlib.Path(folder) / "tune.py", pathlib.Path(folder) / "killed.json"
        log = args.log or log
        program.write_text(PROGRAMS[args.tuner])
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        before: list[str] = []
        for number in range(args.kills):
            run = subprocess.Popen(
                [sys.executable, str(program), str(log), "1000", str(number + 1)],
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,
            )
            life = rng.uniform(args.seconds / 2, args.seconds)
            time.sleep(life)
            os.kill(run.pid, signal.SIGKILL)
            run.wait()
            now, damaged = trials_of(log, args.tuner)
            lost = [trial for trial in before if trial not in now]
            doubled = len(now) - len(set(now))
            print(
                f"kill {number + 1} after {life:.1f} s: {len(now)} records, {damaged} lines cut "
                f"off, {len(lost)} lost, {doubled} doubled",
                flush=True,
            )
            if lost or doubled or damaged > number + 1:
                sys.exit(1)
            before = now
    if not before:
        sys.exit("no run lived long enough to measure anything; give more --seconds")


if __name__ == "__main__":
    main()
