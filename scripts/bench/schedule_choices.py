#!/usr/bin/env python3
"""How well the price of kernels predicts: each layer's choice against what else there is.

    scripts/bench/schedule_choices.py models/*.onnx --configs 2 --minutes 8 --out choices.jsonl

For every convolution and dense layer of the models (each shape once), the implementation and config
that a build takes without records, the other implementations with their own configs, and a few
random configs of the chosen one are built and measured in turn. A choice is right if it is within
5 % of the best of them. Layers come in a random order, always the same, so that those of a few
minutes are a sample of all; what `--out` has already is not measured again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import pathlib
import random
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

import compiler.target as targets
from compiler import autotvm
from compiler.autotvm.confirm import Comparison, run_comparisons
from compiler.autotvm.task import Task, TaskCandidate
from compiler.cli.compile import BuildOptions, import_model
from compiler.cli.console import Steps
from schedules import strategy

RIGHT = 1.05
OPERATORS = ("nn.conv2d", "nn.dense")


def layers(models: list[pathlib.Path], target: Any) -> Iterator[tuple[str, Any]]:
    """(operator, workload) of each shape once."""
    seen = set()
    for model in models:
        mod, params = import_model(model, BuildOptions(target=targets.to_cli(target)), Steps())
        for task in autotvm.task.extract_from_program(mod, params, target, ops=OPERATORS):
            key = (task.tunable.operator.name, task.tunable.workload)
            if key not in seen:
                seen.add(key)
                yield key


def comparison(operator: str, workload: Any, target: Any, configs: int) -> Comparison | None:
    """What a build takes, and what is measured beside it; None where nothing else computes it."""
    chosen = strategy.select(operator, workload, target)
    others = [
        each
        for each in strategy.registered(operator, target)
        if not each.only_recorded and each.supports(workload, target)
    ]
    tasks = {
        each.name: Task(each.name, each.task_args(workload), target)
        for each in others
        if each.task_args
    }
    if chosen is None or chosen[0].name not in tasks:
        return None
    own = TaskCandidate(tasks[chosen[0].name], chosen[1])
    finalists = [
        TaskCandidate(tasks[each.name], each.fallback(workload, target))
        for each in others
        if each.name in tasks and each is not chosen[0]
    ]
    space = own.task.config_space
    indices = iter(random.Random(0).sample(range(len(space)), min(len(space), 100 * configs)))
    valid = filter(space.is_index_valid, indices)
    drawn = itertools.islice(valid, configs)
    finalists += [TaskCandidate(own.task, space.get(index)) for index in drawn]
    return Comparison(list(tasks.values()), own, finalists) if finalists else None


def row_of(operator: str, workload: Any, target: Any, measured: Comparison) -> dict[str, Any]:
    """A line of the output: each candidate's implementation, estimated cycles and seconds."""
    known = {each.name: each for each in strategy.registered(operator, target)}

    def cycles(name: str) -> float | None:
        price = known[name].cycles
        return None if price is None else price(workload, target)

    names = [candidate.task.name for candidate in measured.candidates]
    candidates = [
        {"implementation": name, "cycles": cycles(name), "seconds": seconds}
        for name, seconds in zip(names, measured.seconds)
    ]
    best = min(measured.seconds)
    return {
        "layer": f"{operator} {workload}",
        "candidates": candidates,
        "over_best": measured.seconds[0] / best,
    }


def show(rows: list[dict[str, Any]]) -> None:
    """Print the wrong choices, then how many are right."""
    for row in sorted(rows, key=lambda row: -row["over_best"]):
        if row["over_best"] > RIGHT:
            best = min(row["candidates"], key=lambda each: each["seconds"])
            chosen = row["candidates"][0]["implementation"]
            print(
                f"{row['over_best']:.2f}  {chosen} against {best['implementation']}  {row['layer']}"
            )
    right = sum(row["over_best"] <= RIGHT for row in rows)
    candidates = statistics.mean(len(row["candidates"]) for row in rows)
    mean = statistics.geometric_mean(row["over_best"] for row in rows)
    print(
        f"{right} of {len(rows)} choices within 5 % of the best of {candidates:.1f} candidates; "
        f"geometric mean {mean:.3f} of the best's time"
    )


def main() -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--target", default="llvm", help="of this machine")
    parser.add_argument("--configs", type=int, default=3, help="random ones of the chosen template")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=math.inf, help="no layer begins later")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/choices.jsonl"))
    args = parser.parse_args()
    target = targets.parse(args.target)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    rows = (
        [json.loads(line) for line in args.out.read_text().splitlines()]
        if args.out.exists()
        else []
    )
    done = {row["layer"] for row in rows}
    option = autotvm.measure_option(
        autotvm.LocalBuilder(), autotvm.LocalRunner(number=3, repeat=3, min_repeat_ms=5)
    )
    todo = [each for each in layers(args.models, target) if "{} {}".format(*each) not in done]
    random.Random(0).shuffle(todo)
    began = time.monotonic()
    with args.out.open("a") as out:
        for operator, workload in todo:
            if time.monotonic() - began > 60 * args.minutes:
                break
            made = comparison(operator, workload, target, args.configs)
            if made is None:
                continue
            run_comparisons([made], option, args.rounds)
            rows.append(row_of(operator, workload, target, made))
            out.write(json.dumps(rows[-1]) + "\n")
            out.flush()
    if rows:
        show(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
