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
import json
import pathlib
import random
import re
import statistics
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
import onnx
import onnx.printer

from scripts.fuzz import pool
from scripts.fuzz.attempt import FAILURES, Config, Event
from scripts.fuzz.evaluate import constants_of
from scripts.fuzz.generator import draw
from scripts.fuzz.minimize import Small, alone, minimize
from scripts.fuzz.operators import MAKERS, NOT_DRAWN

TARGETS = ("llvm", "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64-v2")
UNOPTIMIZED = 0.85
"""Share of the builds for which LLVM does not optimize: that is most of the time of a small one."""
SLOW = 10.0
"""Times the usual CPU seconds per kernel, from which on a build is a finding."""
SLOW_SECONDS = 2.0
"""CPU seconds per kernel below which no build is slow."""
REASONED = ("refused", "unclear", "undefined", "onnxruntime")
"""Kinds of events that are counted by their reason."""
MINIMIZING = 90.0
"""Seconds for making one failure small."""
LONGEST = 400
"""Elements of an array that the text of a test spells out."""


@dataclass(frozen=True)
class Plan:
    """Settings of a run, from its command line."""

    seed: int = 0
    first: int = 0
    graphs: int | None = None
    seconds: float | None = None
    nodes: int = 6
    operators: Sequence[str] | None = None
    jobs: int = 1
    limit: float = 120.0
    levels: Sequence[int] = (0, 3)
    targets: Sequence[str] = TARGETS
    findings: pathlib.Path = pathlib.Path("build/fuzz")

    def configs(self, number: int) -> tuple[Config, ...]:
        """Configurations of a case: every level, each for one of the targets."""
        rng = random.Random(f"{self.seed} {number}")
        precision = "strict" if rng.random() < 0.2 else "default"
        return tuple(Config(level, self._target(rng), precision) for level in self.levels)

    def _target(self, rng: random.Random) -> str:
        target = rng.choice(self.targets)
        unoptimized = rng.random() < UNOPTIMIZED and "opt-level" not in target
        return f"{target} -opt-level=0" if unoptimized else target


@dataclass
class Finding:
    """A failure, made small; `origin` is the command that draws the whole case."""

    event: Event
    small: Small
    origin: str

    @property
    def cause(self) -> str:
        """What equal findings have in common."""
        ops = "+".join(node.op_type for node in self.small.model.graph.node)
        what = self.event.what if self.event.kind not in ("wrong", "unjudged") else ""
        dtypes = sorted({str(array.dtype) for array in self.small.feed.values()})
        return f"{self.event.kind}: {ops} {'/'.join(dtypes)} {what}".strip()


def write(finding: Finding, folder: pathlib.Path, number: int) -> pathlib.Path:
    """Write the model, its inputs, the facts and a test to a folder of its own; returns it."""
    ops = "_".join(node.op_type for node in finding.small.model.graph.node)[:60]
    place = folder / f"{number:03d}_{finding.event.kind}_{ops}"
    place.mkdir(parents=True, exist_ok=True)
    onnx.save(finding.small.model, str(place / "model.onnx"))
    with (place / "inputs.npz").open("wb") as file:
        np.savez(file, allow_pickle=False, **dict(finding.small.feed))
    facts = {"origin": finding.origin, "cause": finding.cause, **asdict(finding.event)}
    (place / "finding.json").write_text(json.dumps(facts, indent=1) + "\n")
    (place / "test_case.py").write_text(test_text(finding))
    return place


def read(place: pathlib.Path) -> Small:
    """The case that `write` wrote."""
    with np.load(place / "inputs.npz") as arrays:
        return Small(onnx.load(str(place / "model.onnx")), dict(arrays))


def test_text(finding: Finding) -> str:
    """A test of this case, for the importer's tests and their fixture `runs_as_onnxruntime`."""
    small, config = finding.small, finding.event.config
    model = onnx.ModelProto()
    model.CopyFrom(small.model)
    weights = constants_of(model)
    del model.graph.initializer[:]
    name = "_".join(node.op_type.lower() for node in model.graph.node)
    arguments = f"opt_level={config.level}, target={config.target!r}" if config else ""
    return "\n".join(
        [
            f"# {finding.event.kind}: {finding.event.what}",
            f"# {finding.origin}",
            f"def test_{re.sub(r'[^a-z0-9_]', '', name)}_agrees(runs_as_onnxruntime):",
            '    text = """',
            onnx.printer.to_text(model).replace("\\", "\\\\"),
            '"""',
            f"    weights = {_arrays(weights)}",
            f"    feeds = {_arrays(small.feed)}",
            f"    runs_as_onnxruntime(text, weights, feeds, {arguments})",
            "",
        ]
    )


def _arrays(arrays: object) -> str:
    assert isinstance(arrays, dict)
    return "{" + ", ".join(f"{name!r}: {_array(a)}" for name, a in arrays.items()) + "}"


def _array(array: np.ndarray) -> str:
    if array.size > LONGEST:
        return f"np.zeros({array.shape}, {str(array.dtype)!r})  # of inputs.npz"
    text = re.sub(r"\b(nan|inf)\b", r"np.\1", repr(array.tolist()))
    shape = f".reshape({array.shape})" if array.size == 0 else ""
    return f"np.array({text}, {str(array.dtype)!r}){shape}"


@dataclass
class Campaign:
    """Counts of a run under way."""

    plan: Plan
    kinds: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    examples: dict[tuple[str, str], int] = field(default_factory=dict)
    operators: Counter[str] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    slowest: tuple[float, str] = (0.0, "none")
    graphs: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def one(self, worker: pool.Worker, number: int) -> None:
        """Try one case."""
        plan = self.plan
        task = pool.Drawn(
            plan.seed, number, plan.nodes, plan.configs(number), operators=plan.operators
        )
        outcome = worker.run(task)
        failures = []
        with self.lock:
            self.graphs += 1
            self.operators.update(set(outcome.operators))
            for event in outcome.events:
                if event.kind == "built":
                    event = self._timed(event, number)
                self.kinds[event.kind] += 1
                if event.kind in REASONED:
                    what = event.what
                    self.reasons[event.kind][what] += 1
                    self.examples.setdefault((event.kind, what), number)
                if event.kind in FAILURES:
                    failures.append(event)
        for event in _one_of_each(failures):
            self._found(worker, number, event)

    def _timed(self, event: Event, number: int) -> Event:
        """A slow build is a failure."""
        usual = self._usual(event)
        assert event.config is not None
        self.seconds[event.config.target].append(event.seconds)
        if usual is None:
            return event
        what = f"build of {event.seconds:.1f} CPU seconds per kernel, not {usual:.2f}"
        self.slowest = max(self.slowest, (event.seconds / usual, f"{what} (case {number})"))
        return Event("slow", what, event.config) if self._is_slow(event) else event

    def _usual(self, event: Event) -> float | None:
        """CPU seconds per kernel of the builds for the target of one, once there are some."""
        assert event.config is not None
        times = self.seconds[event.config.target]
        return statistics.median(times) if len(times) >= 20 else None

    def _is_slow(self, event: Event) -> bool:
        usual = self._usual(event)
        return usual is not None and event.seconds > max(SLOW * usual, SLOW_SECONDS)

    def _found(self, worker: pool.Worker, number: int, event: Event) -> None:
        """Make a failure small and write it down, unless there is one like it."""
        if event.kind in ("exception", "crash", "hang") and self.causes[event.what] >= 2:
            self.causes[event.what] += 1
            return
        plan = self.plan
        case = draw(plan.seed, number, plan.nodes, plan.operators)
        feed = case.feeds[event.feed or next(iter(case.feeds))]
        configs = (event.config,) if event.config else plan.configs(number)
        kind = event.feed or "plain"

        def fails(small: Small) -> bool:
            task = pool.Given(small.model.SerializeToString(), {kind: small.feed}, configs)
            outcome = worker.run(task)
            if event.kind == "slow":
                return any(e.kind == "built" and self._is_slow(e) for e in outcome.events)
            if event.kind in ("wrong", "unjudged", "onnxruntime"):
                return any(e.kind == event.kind for e in outcome.events)
            return any((e.kind, e.what) == (event.kind, event.what) for e in outcome.events)

        small = Small(case.model, feed)
        if fails(small):
            small = alone(small, fails)
            if self._again(Finding(event, small, "").cause):
                return
            small = minimize(small, fails, MINIMIZING)
        origin = f"--seed {plan.seed} --first {number} --graphs 1 --nodes {plan.nodes}"
        if plan.operators:
            origin += " --operators " + " ".join(plan.operators)
        finding = Finding(event, small, origin)
        with self.lock:
            self.causes[event.what] += 1
            self.causes[finding.cause] += 1
            if self.causes[finding.cause] > 1:
                return
            place = write(finding, plan.findings, len(self.findings()))
        print(f"{place}: {finding.cause}; {event.what}; {event.config}; {event.feed}", flush=True)

    def _again(self, cause: str) -> bool:
        """Count a cause that is known already."""
        with self.lock:
            known = self.causes[cause] > 0
            if known:
                self.causes[cause] += 1
            return known

    def findings(self) -> list[str]:
        """Causes of failures, of which each is written down once."""
        return [cause for cause in self.causes if cause.split(":")[0] in FAILURES]

    def summary(self, cpu_seconds: float) -> str:
        """Summary of the run."""
        per_minute = 60 * self.graphs / cpu_seconds if cpu_seconds else 0
        missing = [n for n in sorted(MAKERS) if n.split(".")[-1] not in self.operators]
        lines = [
            f"{self.graphs} graphs, {per_minute:.0f} per CPU minute; "
            f"{len(self.findings())} causes of failures",
            f"slowest for its target, {self.slowest[0]:.0f} times the median: {self.slowest[1]}",
            "outcomes: " + ", ".join(f"{n} {kind}" for kind, n in sorted(self.kinds.items())),
            f"operators: {len(MAKERS) - len(missing)} of {len(MAKERS)} drawn"
            + (f"; not {', '.join(missing)}" if 0 < len(missing) < 40 else ""),
            f"operators that the importer has and the generator not: {', '.join(NOT_DRAWN)}",
        ]
        for kind in REASONED:
            lines.append(f"{kind}:")
            lines += [
                f"  {count:5d}  {what}  (case {self.examples[kind, what]})"
                for what, count in self.reasons[kind].most_common()
            ]
        lines += [
            "findings:",
            *(f"  {self.causes[cause]:5d}  {cause}" for cause in self.findings()),
        ]
        return "\n".join(lines)


def _one_of_each(events: Sequence[Event]) -> list[Event]:
    """Of the failures of a case, the first of each kind."""
    found: dict[str, Event] = {}
    for event in events:
        found.setdefault(event.kind, event)
    return list(found.values())


def run(plan: Plan) -> int:
    """Try cases as the plan says and print what came of it; returns the exit status."""
    pool.prepare()
    campaign = Campaign(plan)
    last = plan.first + plan.graphs if plan.graphs is not None else sys.maxsize
    with pool.own_environment():
        numbers = range(plan.first, last)
        pool.run_in_workers(
            numbers, campaign.one, limit=plan.limit, seconds=plan.seconds, jobs=plan.jobs
        )
    print(campaign.summary(pool.cpu_seconds()))
    return 1 if campaign.findings() else 0


def again(place: pathlib.Path, limit: float) -> int:
    """Try a finding again; returns the exit status."""
    pool.prepare()
    facts = json.loads((place / "finding.json").read_text())
    small = read(place)
    config = facts["config"]
    configs = (Config(**config),) if config else tuple(Config(n, "llvm") for n in (0, 3))
    feeds = {facts["feed"] or "plain": small.feed}
    with pool.own_environment():
        worker = pool.Worker(limit)
        outcome = worker.run(pool.Given(small.model.SerializeToString(), feeds, configs))
        worker.close()
    for event in outcome.events:
        print(event.kind, event.what, event.config or "", event.feed)
    return 1 if any(event.kind in FAILURES for event in outcome.events) else 0


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
    parser.add_argument("--targets", nargs="*", default=TARGETS, help="each case has one of them")
    parser.add_argument("--findings", type=pathlib.Path, default=pathlib.Path("build/fuzz"))
    parser.add_argument("--again", type=pathlib.Path, help="a finding's folder")
    args = parser.parse_args()
    if args.again:
        return again(args.again, args.limit)
    if args.graphs is None and args.seconds is None:
        args.seconds = 600.0
    del args.again
    return run(Plan(**vars(args)))


if __name__ == "__main__":
    sys.exit(main())
