#!/usr/bin/env python3
"""Random whole networks with open axes, each one library for all sizes, against onnxruntime.

    python -m scripts.fuzz.run_networks --seconds 600 --seed 1
    python -m scripts.fuzz.run_networks --seed 1 --first 42 --count 1   # network 42 again
    python -m scripts.fuzz.run_networks --backends onnxruntime,onednn --fixed

A network is drawn in the style of a family (`scripts/fuzz/networks`), with some of its axes open.
It is imported and built once and run at several ordinary sizes, with axes of 0 and 1, and with all
axes small, where its own extents may vanish. The exit status is 1 if there are findings;
docs/fuzzing.md says how to read them.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from scripts.fuzz import pool
from scripts.fuzz.attempt import Config, Event, Say, Step, build, refusal
from scripts.fuzz.networks.families import draw
from scripts.fuzz.networks.net import Network
from scripts.fuzz.run_extents import GUARDED, expect, guarded, outcome

FAILED = (
    "wrong",
    "unjudged",
    "exception",
    "internal",
    "accepted",
    "raised",
    "refused",
    "crash",
    "hang",
)
"""Kinds of events that are findings."""
INTERNAL = re.compile(
    r"PrimExpr|CodeGenVM|Inconsistent buffer|Check failed|InternalError|tirx?\.|T\.\w+\(|"
    r"R\.\w+\(|relax\.|TVMError|Traceback|\.cc\b|is not computed|NoneType|KeyError|IndexError"
)
"""Text of errors inside TVM or Baton, which users should not see."""
NEVER = re.compile(r"(?!)")
POOLS_NEED = re.compile(r"too small.*pool|pool.*is less than")
"""Pools whose window is larger than the image by less than the stride: ONNX's formula has no
result, onnxruntime rounds the negative quotient towards zero and has one."""
SAME_PADS = "padding values must be non-negative"
"""onnxruntime on auto_pad=SAME where the last window ends before the image: it needs no padding."""
REJECTED_EMPTY = re.compile(
    "running (Reshape|Squeeze|Conv|GlobalAveragePool|MaxPool|AveragePool|Scan) node"
)
"""Nodes that onnxruntime rejects for tensors without elements: a Reshape with an extent of -1,
which here is what it is at all sizes, a Squeeze of an axis without elements, a Scan of no steps,
and a Conv, a pool or a mean, which here is NaN."""
EMPTY = re.compile(r"shape \((?:.*, )?0(?:, .*)?\), not \((?:.*, )?0(?:, .*)?\)$")
"""Results without elements of other shapes: where a model computes an extent of 0 for Reshape,
onnxruntime takes that of the operand's axis at its place."""
OPTIMIZED = 0.1
"""Share of the builds that LLVM optimizes."""

Sizes = dict[str, int]


def sizes_of(net: Network, rng: np.random.Generator) -> list[Sizes]:
    """Extents of the open axes for each run: ordinary ones, an axis of 1 and of 0, small ones."""

    def ordinary() -> Sizes:
        return {
            name: int(rng.integers(low, high + 1)) for name, (low, high) in net.ordinary.items()
        }

    names = sorted(net.ordinary)
    found = [ordinary(), ordinary()]
    if not names:
        return found[:1]
    for extent in (1, 0):
        found.append({**ordinary(), names[int(rng.integers(len(names)))]: extent})
    found.append(dict.fromkeys(names, 1))
    found.append({name: int(rng.integers(1, 6)) for name in names})
    return found


@dataclass(frozen=True)
class Drawn:
    """A network by its number, for `pool.Worker`."""

    seed: int
    number: int
    level: int | None = None
    backends: str = ""
    fixed: bool = False
    skip: tuple[str, ...] = ()

    def run(self, say: Say, skip: Sequence[str]) -> pool.Outcome:
        """Draw, build and run it at all sizes."""
        say(Step("draw"))
        net = draw(self.seed, self.number)
        return pool.Outcome(list(self._events(net, say, skip)), tuple(net.stages), len(net.nodes))

    def _events(self, net: Network, say: Say, skip: Sequence[str]) -> Iterator[Event]:
        from compiler.partition import partition
        from compiler.relay.frontend import from_onnx

        model = net.model()
        rng = np.random.default_rng([self.seed, self.number, 1])
        runs = [(sizes, net.feed(sizes, rng)) for sizes in sizes_of(net, rng)]
        runs = runs[:1] if self.fixed else runs
        shapes = {name: value.shape for name, value in runs[0][1].items()} if self.fixed else None
        target = "llvm" if rng.random() < OPTIMIZED else "llvm -opt-level=0"
        config = Config(3 if self.level is None else self.level, target)
        expected = []
        for sizes, feed in runs:
            say(Step("reference", feed=str(sizes)))
            expected.append(None if str(sizes) in skip else expect(model, feed))
        if not any(each is not None and each.values is not None for each in expected[:2]):
            error = next((each.error for each in expected if each is not None and each.error), "")
            yield Event("invalid", error[:200])
            return
        try:
            say(Step("import", config))
            mod, params = from_onnx(model, shapes)
            if self.backends:
                say(Step("partition", config))
                mod = partition(mod, self.backends.split(","), params)
            say(Step("build", config))
            library = build(mod, params, config)
        except Exception as error:
            event = refusal(error, config)
            yield Event(_kind(event.kind, error), event.what, config)
            return
        for (sizes, feed), each in zip(runs, expected):
            if each is None:
                continue
            say(Step("run", config, str(sizes)))
            kind, what = outcome(library, model, feed, each)
            if kind in ("agree", "raised", "exception") and INTERNAL.search(what):
                kind = "internal"
            excused = {"accepted": REJECTED_EMPTY, "wrong": EMPTY} if 0 in sizes.values() else {}
            is_excused = {**excused, "raised": POOLS_NEED}.get(kind, NEVER).search(what)
            if is_excused or (kind == "accepted" and SAME_PADS in each.error):
                kind = "onnxruntime"
            yield Event(kind, what, config, str(sizes))


def _kind(kind: str, error: Exception) -> str:
    if kind != "exception" and INTERNAL.search(str(error)):
        return "internal"
    return "refused" if kind == "unclear" else kind


@dataclass(frozen=True)
class Plan:
    """Settings of a run, from its command line."""

    seed: int = 0
    first: int = 0
    count: int | None = None
    seconds: float | None = None
    jobs: int = 1
    limit: float = 120.0
    level: int | None = None
    backends: str = ""
    fixed: bool = False


@dataclass
class Campaign:
    """Counts of a run under way."""

    plan: Plan
    kinds: Counter[str] = field(default_factory=Counter)
    stages: Counter[str] = field(default_factory=Counter)
    networks: Counter[str] = field(default_factory=Counter)
    found: dict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list))
    lock: threading.Lock = field(default_factory=threading.Lock)

    def one(self, worker: pool.Worker, number: int) -> None:
        """Try one network."""
        plan = self.plan
        outcome = worker.run(Drawn(plan.seed, number, plan.level, plan.backends, plan.fixed))
        with self.lock:
            self.stages.update(set(outcome.operators))
            failed = {event.kind for event in outcome.events} & set(FAILED)
            invalid = any(
                event.kind in ("invalid", "onnxruntime") and not event.config
                for event in outcome.events
            )
            self.networks["invalid" if invalid else "with findings" if failed else "right"] += 1
            for event in outcome.events:
                self.kinds[event.kind] += 1
                if event.kind in (*FAILED, "invalid"):
                    self._note(number, event, outcome.operators)

    def _note(self, number: int, event: Event, stages: Sequence[str]) -> None:
        key = (event.kind, event.what)
        if not self.found[key]:
            print(
                f"{event.kind}: network {number} ({', '.join(stages)}) {event.feed}: {event.what}",
                flush=True,
            )
        self.found[key].append(str(number))

    def findings(self) -> list[tuple[str, str]]:
        """Kinds and causes of findings."""
        return [key for key in self.found if key[0] in FAILED]

    def summary(self) -> str:
        """Summary of the run."""
        lines = [
            "networks: " + ", ".join(f"{n} {kind}" for kind, n in sorted(self.networks.items())),
            "runs: " + ", ".join(f"{n} {kind}" for kind, n in sorted(self.kinds.items())),
            "stages: " + ", ".join(f"{n} {stage}" for stage, n in sorted(self.stages.items())),
            f"{len(self.findings())} findings:",
        ]
        for kind, what in sorted(self.findings()):
            where = self.found[kind, what]
            lines.append(f"  {len(where):4d} {kind}: {what}  (networks {', '.join(where[:5])})")
        return "\n".join(lines)


def run(plan: Plan) -> int:
    """Try networks as the plan says and print what came of it; returns the exit status."""
    pool.prepare()
    campaign = Campaign(plan)
    last = plan.first + plan.count if plan.count is not None else sys.maxsize
    with pool.own_environment():
        pool.run_in_workers(
            range(plan.first, last),
            campaign.one,
            limit=plan.limit,
            seconds=plan.seconds,
            jobs=plan.jobs,
        )
    print(campaign.summary())
    return 1 if campaign.findings() else 0


def main() -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="of the run")
    parser.add_argument("--first", type=int, default=0, help="number of the first network")
    parser.add_argument("--count", type=int, help="how many networks")
    parser.add_argument("--seconds", type=float, help="for how long")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes")
    parser.add_argument("--limit", type=float, default=120, help="CPU seconds until a step hangs")
    parser.add_argument("--level", type=int, help="opt_level instead of 3")
    parser.add_argument(
        "--backends", default="", help="partition for them, such as openvino,onednn"
    )
    parser.add_argument("--fixed", action="store_true", help="one size, fixed when imported")
    args = parser.parse_args()
    if args.count is None and args.seconds is None:
        args.seconds = 600.0
    if GUARDED not in os.environ:  # the loader reads LD_PRELOAD when a process starts
        with tempfile.TemporaryDirectory(prefix="guard-") as folder:
            env = {**os.environ, **guarded(pathlib.Path(folder))}
            command = [sys.executable, "-m", "scripts.fuzz.run_networks", *sys.argv[1:]]
            return subprocess.run(command, env=env, check=False).returncode
    return run(Plan(**vars(args)))


if __name__ == "__main__":
    sys.exit(main())
