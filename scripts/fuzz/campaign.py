"""A run of many cases: tried, counted, failures made small and written down."""

from __future__ import annotations

import argparse
import json
import pathlib
import random
import statistics
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from . import pool
from .attempt import FAILURES, Config, Event
from .generator import draw
from .minimize import Small, alone, minimize
from .operators import MAKERS, NOT_DRAWN
from .report import Finding, read, write

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


@dataclass(frozen=True)
class Plan:
    """What a run does, from its command line."""

    seed: int = 0
    first: int = 0
    graphs: int | None = None
    seconds: float | None = None
    nodes: int = 6
    operators: tuple[str, ...] | None = None
    jobs: int = 1
    limit: float = 120.0
    levels: tuple[int, ...] = (0, 3)
    targets: tuple[str, ...] = TARGETS
    findings: pathlib.Path = pathlib.Path("build/fuzz")

    @staticmethod
    def of(args: argparse.Namespace) -> Plan:
        """The plan of parsed arguments."""
        names = {key: getattr(args, key) for key in Plan.__dataclass_fields__}
        names["levels"] = tuple(args.levels)
        names["targets"] = tuple(args.targets or TARGETS)
        names["operators"] = tuple(args.operators) if args.operators else None
        return Plan(**names)

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

    def work(self, numbers: Sequence[int], end: float) -> None:
        """Try the cases of these numbers until `end`."""
        worker = pool.Worker(self.plan.limit)
        try:
            for number in numbers:
                if time.monotonic() >= end:
                    break
                self.one(worker, number)
        finally:
            worker.close()

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
        """What the run came to."""
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
    end = time.monotonic() + (plan.seconds if plan.seconds is not None else float("inf"))
    last = plan.first + plan.graphs if plan.graphs is not None else sys.maxsize
    with pool.own_environment():
        shares = [range(plan.first + i, last, plan.jobs) for i in range(plan.jobs)]
        threads = [threading.Thread(target=campaign.work, args=(share, end)) for share in shares]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
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
