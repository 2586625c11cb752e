#!/usr/bin/env python3
"""Random Relay programs: builder, text, JSON, executors and partitions have to agree with numpy.

    python -m scripts.fuzz.run_relay --seconds 600
    python -m scripts.fuzz.run_relay --seed 3 --first 120 --count 1     # one program again
    python -m scripts.fuzz.run_relay --models --seconds 600             # partitions of ONNX models

What fails is made small and written below `--findings`. The exit status is 1 if there is any.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import random
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from scripts.fuzz.attempt import Event, Say, Step, normal
from scripts.fuzz.pool import Outcome, Worker, own_environment, prepare, run_in_workers
from scripts.fuzz.relay_makers import MAKERS, NUMPY, Unfit

FAILED = ("wrong", "exception", "differs", "report", "crash", "hang")
"""Kinds of events that are findings."""
_SHAPES = ((), (3,), (2, 3), (1, 6), (4, 1), (2, 3, 4), (1, 2, 5, 5), (2, 3, 4, 4), (2, 1, 3))
_LARGEST = 4000
CACHE_BYTES = 200_000_000
"""Of kernels: those of a program are the same in most of its forms."""


@dataclass(frozen=True)
class Node:
    """An input, a constant, or a call of an operator on earlier nodes."""

    op: str
    operands: tuple[int, ...]
    attributes: Mapping[str, Any]
    value: np.ndarray


@dataclass
class Draft:
    """A program while it is drawn; nodes have the values that numpy gives them."""

    rng: random.Random
    nodes: list[Node] = field(default_factory=list)

    def add(self, op: str, operands: Sequence[int], **attributes: Any) -> None:
        """Append a call; raises Unfit where its value is too large."""
        value = run_node(op, [self.nodes[i].value for i in operands], attributes)
        if value.size > _LARGEST or value.ndim > 5:
            raise Unfit
        self.nodes.append(Node(op, tuple(operands), attributes, value))

    def input(self, shape: Sequence[int], dtype: str) -> int:
        """Append an input, or now and then a constant."""
        value = values(self.rng, shape, dtype)
        return self.constant(value) if self.chance(0.3) else self._leaf("input", value)

    def constant(self, value: np.ndarray) -> int:
        """Append a constant."""
        return self._leaf("constant", value)

    def _leaf(self, op: str, value: np.ndarray) -> int:
        self.nodes.append(Node(op, (), {}, value))
        return len(self.nodes) - 1

    def value(
        self,
        dtypes: Sequence[str],
        least: int = 0,
        most: int = 5,
        shape: Sequence[int] | None = None,
        made: bool = False,
    ) -> int:
        """A node of some dtypes, ranks or a shape; with `made` a new input where there is none."""
        fits = [
            i for i, node in enumerate(self.nodes)
            if str(node.value.dtype) in dtypes and least <= node.value.ndim <= most
            and (shape is None or node.value.shape == tuple(shape)) and node.value.size
        ]  # fmt: skip
        if fits and not (made and self.chance(0.3)):
            return self.rng.choice(fits[-6:])
        if not made and self.chance(0.7):
            raise Unfit
        ranks = [each for each in _SHAPES if least <= len(each) <= most]
        return self.input(self.rng.choice(ranks) if shape is None else shape, self.pick(dtypes))

    def alike(self, first: int) -> int:
        """A node that broadcasts with another."""
        shape = [n if self.chance(0.8) else 1 for n in self.shape(first)]
        return self.value(
            (self.dtype(first),), shape=shape[self.rng.choice([0, 0, 0, 1]) :], made=True
        )

    def shape(self, node: int) -> tuple[int, ...]:
        """Of a node's value."""
        return self.nodes[node].value.shape

    def dtype(self, node: int) -> str:
        """Of a node's value."""
        return str(self.nodes[node].value.dtype)

    def rank(self, node: int) -> int:
        """Number of axes of a node's value."""
        return len(self.shape(node))

    def axis(self, node: int) -> int:
        """One of a node's axes, counted from either end."""
        return self.rng.randrange(-self.rank(node), self.rank(node))

    def axes(self, node: int) -> list[int]:
        """Some of a node's axes."""
        return sorted(self.rng.sample(range(self.rank(node)), self.rng.randint(1, self.rank(node))))

    def pick(self, choices: Sequence[Any]) -> Any:
        """One of several."""
        return self.rng.choice(choices)

    def integer(self, low: int, high: int) -> int:
        """From `low` to `high`, both included."""
        return self.rng.randint(low, high)

    def chance(self, probability: float) -> bool:
        """Whether something of a probability happens."""
        return self.rng.random() < probability

    def shuffled(self, items: list[Any]) -> list[Any]:
        """The same in another order."""
        return self.rng.sample(items, len(items))


def values(rng: random.Random, shape: Sequence[int], dtype: str) -> np.ndarray:
    """Small numbers of a dtype."""
    made = np.random.default_rng(rng.getrandbits(32)).uniform(-2, 2, tuple(shape))
    return np.asarray(made > 0 if dtype == "bool" else made * (4 if "int" in dtype else 1)).astype(
        dtype
    )


def run_node(op: str, operands: Sequence[np.ndarray], attributes: Mapping[str, Any]) -> np.ndarray:
    """What numpy makes of one call."""
    with np.errstate(all="ignore"):
        return np.asarray(NUMPY[op](*operands, **attributes))


def draw(seed: int, number: int, largest: int) -> list[Node]:
    """The program of a number: up to `largest` calls."""
    draft = Draft(random.Random(f"{seed} {number}"))
    rng, wanted = draft.rng, 1 + number % largest
    for _ in range(2):
        draft._leaf("input", values(rng, rng.choice(_SHAPES[2:]), "float32"))
    draft._leaf("input", values(rng, rng.choice(_SHAPES), rng.choice(("int32", "int64", "int8"))))
    calls = 0
    while calls < wanted:
        op, before = rng.choice(list(MAKERS)), len(draft.nodes)
        try:
            MAKERS[op](draft, op)
            calls += 1
        except Unfit:
            del draft.nodes[before:]
    return draft.nodes


def part(nodes: Sequence[Node], outputs: Sequence[int]) -> tuple[list[Node], list[int]]:
    """The program of some of the nodes as outputs, without what they do not need."""
    needed: set[int] = set()
    stack = list(outputs)
    while stack:
        i = stack.pop()
        if i not in needed:
            needed.add(i)
            stack += nodes[i].operands
    place = {old: new for new, old in enumerate(sorted(needed))}
    kept = [
        Node(n.op, tuple(place[j] for j in n.operands), n.attributes, n.value)
        for n in (nodes[i] for i in sorted(needed))
    ]
    return kept, [place[i] for i in outputs]


def last_values(nodes: Sequence[Node]) -> list[int]:
    """Calls that no other reads, which are the outputs of a program."""
    read = {i for node in nodes for i in node.operands}
    return [i for i, node in enumerate(nodes) if node.op in MAKERS and i not in read]


def build_module(nodes: Sequence[Node], outputs: Sequence[int]) -> Any:
    """The program as a Relay module, made by the builder's functions."""
    import tvm

    from compiler import relay

    made: list[Any] = []
    variables = []
    for i, node in enumerate(nodes):
        if node.op == "input":
            made.append(relay.var(f"x{i}", shape=node.value.shape, dtype=str(node.value.dtype)))
            variables.append(made[-1])
        elif node.op == "constant":
            # Without a dtype, int64 becomes int32, as it did in Relay.
            made.append(relay.const(node.value, str(node.value.dtype)))
        else:
            function: Any = relay
            for name in node.op.split("."):
                function = getattr(function, name)
            operands: list[Any] = [made[j] for j in node.operands]
            if node.op in ("concatenate", "stack"):
                operands = [relay.Tuple(operands)]
            made.append(function(*operands, **node.attributes))
    found = [made[i] for i in outputs]
    body = found[0] if len(found) == 1 else relay.Tuple(found)
    return tvm.IRModule.from_expr(relay.Function(variables, body))


def expected(nodes: Sequence[Node], outputs: Sequence[int]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Value of each output and how far from it a result may be.

    The program is run again in double precision, and several times with noise of the size of
    rounding at each node: what that changes, rounding may change.
    """
    exact = _run(nodes, None)
    wide = np.finfo("float64")
    spread = [np.zeros(value.shape) for value in exact]
    for seed in range(4):
        noisy = _run(nodes, np.random.default_rng(seed))
        for i, (one, other) in enumerate(zip(exact, noisy)):
            apart = np.abs(one.astype("float64") - other.astype("float64"))
            apart = np.where(np.isfinite(apart), apart, np.where(_same(one, other), 0, wide.max))
            spread[i] = np.maximum(spread[i], apart)
    found = []
    for i in outputs:
        value = exact[i]
        scale = 0.0
        if nodes[i].value.dtype.kind == "f" and value.size:
            finite = np.abs(value[np.isfinite(value)])
            scale = 4e-6 * (float(finite.max()) if finite.size else 0.0) + 1e-6
        found.append((value, 30 * np.minimum(spread[i], 1e300) + scale))
    return found


def _same(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return (one == other) | ((one != one) & (other != other))


def _run(nodes: Sequence[Node], noise: np.random.Generator | None) -> list[np.ndarray]:
    made: list[np.ndarray] = []
    for node in nodes:
        wide = node.value.dtype.kind == "f"
        if node.op in NUMPY:
            attributes = dict(node.attributes)
            if node.op == "cast" and wide:
                attributes["dtype"] = "float64"
            value = run_node(node.op, [made[i] for i in node.operands], attributes)
            # What is exact stays exact; integers and booleans have the dtype that they had.
            value = value.astype("float64" if wide else node.value.dtype)
        else:
            value = node.value.astype("float64") if wide else node.value
        if wide and noise is not None and node.op in NUMPY:
            value = value * (1 + noise.uniform(-1, 1, value.shape) * 2.0**-22)
        made.append(value)
    return made


def compare(got: Sequence[np.ndarray], wanted: Sequence[tuple[np.ndarray, np.ndarray]]) -> str:
    """What is wrong with results, "" if nothing."""
    for n, (mine, (value, allowed)) in enumerate(zip(got, wanted, strict=True)):
        if mine.shape != value.shape:
            return f"output {n} has the shape {mine.shape}, not {value.shape}"
        with np.errstate(all="ignore"):
            near = np.abs(mine.astype("float64") - value.astype("float64")) <= allowed
        bad = ~(near | _same(mine.astype("float64"), value.astype("float64")) | (allowed > 1e290))
        if bad.any():
            at = tuple(int(i) for i in np.argwhere(bad)[0])
            return f"output {n} has {mine[at]}, not {value[at]} +- {allowed[at]:.1e} at {at}"
    return ""


@dataclass(frozen=True)
class Program:
    """A program by its number, or the part of it that computes some nodes, for a worker.

    Attributes
    ----------
    outputs : tuple of int
        Nodes to compute; those that no other reads where it is empty.
    """

    seed: int
    number: int
    largest: int
    outputs: tuple[int, ...] = ()
    skip: tuple[str, ...] = ()

    def run(self, say: Say, skip: Sequence[str]) -> Outcome:
        """Build and run it in all ways; what differs is an event."""
        nodes = draw(self.seed, self.number, self.largest)
        nodes, outputs = part(nodes, self.outputs or last_values(nodes))
        step = "builder"
        try:
            inputs = [node.value for node in nodes if node.op == "input"]
            wanted = expected(nodes, outputs)
            say(Step(step))
            mod = build_module(nodes, outputs)
            events = []
            for step, made, kind, level in _ways(mod):
                say(Step(step))
                got = evaluate(made(), inputs, kind, level, self.number)
                wrong = compare(got, wanted)
                dtypes = [str(nodes[i].value.dtype) for i in outputs]
                if [str(value.dtype) for value in got] != dtypes:
                    wrong = f"results are {[str(value.dtype) for value in got]}, not {dtypes}"
                events.append(Event("wrong", f"{step}: {wrong}") if wrong else Event("agree", step))
            step = "partition"
            say(Step(step))
            rng = random.Random(f"{self.seed} {self.number} partition")
            whole, event = partitioned(mod, rng)
            if event is None:
                got = evaluate(whole, inputs, "graph", 3, self.number)
                wrong = compare(got, wanted)
                event = Event("wrong", f"{step}: {wrong}") if wrong else Event("agree", step)
            events.append(event)
        except Exception as error:  # every program is right: a refusal is a finding as well
            return Outcome([Event("exception", f"{step}: {normal(error)}")])
        ops = tuple(node.op for node in nodes if node.op in NUMPY)
        return Outcome(events, ops, len(ops))


def _ways(mod: Any) -> Iterable[tuple[str, Any, str, int]]:
    import tvm

    from compiler import relay

    yield "builder at 0", lambda: mod, "graph", 0
    yield "builder at 3", lambda: mod, "vm", 3
    yield "text at 3", lambda: relay.fromtext(relay.astext(mod)), "debug", 3
    yield "json at 0", lambda: relay.load_json(str(tvm.ir.save_json(mod))), "debug", 0


def evaluate(
    mod: Any, inputs: Sequence[np.ndarray], kind: str, level: int, number: int
) -> list[np.ndarray]:
    """Results of `main` of an executor, flattened; LLVM optimizes one program in seven."""
    import tvm

    from compiler import relay

    target = "llvm -opt-level=0" if number % 7 else "llvm"
    with tvm.transform.PassContext(opt_level=level):
        result = relay.create_executor(kind, mod, target=target).evaluate()(*inputs)
    return _flat(result)


def _flat(value: Any) -> list[np.ndarray]:
    if hasattr(value, "numpy"):
        return [value.numpy()]
    return [leaf for item in value for leaf in _flat(item)]


def partitioned(mod: Any, rng: random.Random) -> tuple[Any, Event | None]:
    """The module after a random backend, and what is wrong with the report of it."""
    from compiler.partition import Strategy, partition_with_report, register, subgraphs, unregister
    from compiler.partition.vocabulary import knows_relax

    claimed: set[str] = set()
    share = rng.choice((0.3, 0.6, 0.9, 1.0))
    numbers = rng.choice(((-1,), (-1, 1), (1, 2)))

    def claim(graph_json: str, ids: list[int], options: dict[str, str]) -> None:
        for index, node in enumerate(json.loads(graph_json)["nodes"]):
            if node["op"] != "null" and rng.random() < share:
                ids[index] = rng.choice(numbers)
                claimed.add(node["op"])

    def accept(
        subgraph_json: str, number: int, options: Any, attrs: Any, args: Any, aux: Any
    ) -> bool:
        if rng.random() < 0.3:
            attrs["reason"] = "drawn"
            return False
        if rng.random() < 0.3:
            attrs["target"] = "llvm"
        return True

    options: dict[str, Any] = {}
    if rng.random() < 0.3:
        options["min_ops"] = rng.randint(1, 3)
    if rng.random() < 0.3:
        options["max_ops"] = rng.randint(1, 4)
    if rng.random() < 0.3:
        options["dedup_subgraph"] = True
    register("drawn", Strategy("drawn", claim, accept), replace=True)
    try:
        done = partition_with_report(mod, "drawn", **options)
    finally:
        unregister("drawn")
    found = subgraphs(done.module)
    accepted = [each for each in done.candidates if each.accepted]
    names = [name for each in done.candidates for name in each.nodes]
    # A backend that claims what only Relax calls so gets what arranges parameters as well, and its
    # candidates have Relax's names.
    of_relay = not knows_relax(claimed)
    problem = ""
    if len(set(names)) != len(names):
        problem = "a node is in two candidates"
    elif of_relay and any(set(each.operators) - claimed for each in done.candidates):
        problem = "a candidate has an operator that was not claimed"
    elif "max_ops" in options and any(len(c.nodes) > options["max_ops"] for c in accepted):
        problem = "a subgraph is larger than max_ops"
    elif "dedup_subgraph" not in options and len(found) != len(accepted):
        problem = f"{len(accepted)} candidates were accepted, and there are {len(found)} subgraphs"
    elif any(not each.accepted and not each.reason for each in done.candidates):
        problem = "a candidate was rejected without a reason"
    elif (
        of_relay
        and sorted(op for each in found for op in each.operators)
        != sorted(op for each in accepted for op in each.operators)
        and "dedup_subgraph" not in options
    ):
        problem = "the subgraphs do not have the operators of their candidates"
    return done.module, Event("report", f"partition: {problem}") if problem else None


@dataclass(frozen=True)
class Partition:
    """A random ONNX model and a random backend, for a worker; unpartitioned it is the judge."""

    seed: int
    number: int
    largest: int
    skip: tuple[str, ...] = ()

    def run(self, say: Say, skip: Sequence[str]) -> Outcome:
        """Compare with the build that is not partitioned."""
        from compiler import relay
        from compiler.errors import BatonError
        from scripts.fuzz.generator import draw as draw_model

        say(Step("draw"))
        case = draw_model(self.seed, self.number, self.largest)
        say(Step("whole"))
        try:
            mod, params = relay.frontend.from_onnx(case.model)
            feed = [case.feeds["plain"][value.name] for value in case.model.graph.input]
            inputs = [*feed, *params.values()]
            wanted = evaluate(mod, inputs, "graph", 3, self.number)
        except BatonError as error:
            return Outcome([Event("refused", normal(error))])
        say(Step("partition"))
        try:
            whole, event = partitioned(mod, random.Random(f"{self.seed} {self.number}"))
            if event is None:
                got = evaluate(whole, inputs, "graph", 3, self.number)
                bad = [
                    n for n, (a, b) in enumerate(zip(got, wanted, strict=True)) if not _near(a, b)
                ]
                event = (
                    Event("differs", f"outputs {bad}") if bad else Event("agree", "onnx partition")
                )
        except Exception as error:
            event = Event("exception", f"onnx partition: {normal(error)}")
        return Outcome([event], case.operators, len(case.model.graph.node))


def _near(one: np.ndarray, other: np.ndarray) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.dtype.kind not in "fc":
        return bool(np.array_equal(one, other))
    finite = np.abs(other[np.isfinite(other)].astype("float64"))
    scale = float(finite.max(initial=0.0))
    loose = 2e-2 if one.dtype.itemsize == 2 else 2e-4
    return bool(
        np.allclose(one.astype("float64"), other.astype("float64"), loose, loose * scale, True)
    )


def run(
    findings: pathlib.Path,
    *,
    seed: int = 0,
    first: int = 0,
    count: int | None = None,
    seconds: float | None = None,
    largest: int = 12,
    limit: float = 120.0,
    models: bool = False,
) -> Counter[str]:
    """Try programs, or with `models` partitions of ONNX models; counts of what became of them."""
    prepare()
    kind = Partition if models else Program
    counts: Counter[str] = Counter()
    causes: Counter[str] = Counter()

    def one(worker: Worker, number: int) -> None:
        outcome = worker.run(kind(seed, number, largest))
        counts.update(event.kind for event in outcome.events)
        failed = next((event for event in outcome.events if event.kind in FAILED), None)
        if failed is not None and causes[failed.what] < 3:
            causes[failed.what] += 1
            _write(findings, worker, seed, number, largest, failed, models)
        counts["cases"] += 1
        counts["operators"] += outcome.nodes

    with own_environment(CACHE_BYTES):
        last = sys.maxsize if count is None else first + count
        run_in_workers(range(first, last), one, limit=limit, seconds=seconds)
    print(f"{counts['cases']} {'models' if models else 'programs'} (--seed {seed}):", dict(counts))
    return counts


def _write(
    findings: pathlib.Path, worker: Worker, seed: int, number: int, largest: int, event: Event,
    models: bool,
) -> None:  # fmt: skip
    """Make a failing program small, and write it as text."""
    kind = "model" if models else "program"
    place = findings / f"{kind}-{seed}-{number}"
    findings.mkdir(parents=True, exist_ok=True)
    text = f"{event.kind}: {event.what}\n"
    if not models:
        nodes = draw(seed, number, largest)
        for i, node in enumerate(nodes):
            smaller = Program(seed, number, largest, (i,))
            if node.op in MAKERS and any(e.kind == event.kind for e in worker.run(smaller).events):
                nodes, _ = part(nodes, [i])
                break
        for i, node in enumerate(nodes):
            text += f"{i}: {node.op}{node.operands} {dict(node.attributes)} -> "
            text += f"{node.value.dtype}{list(node.value.shape)}\n"
    place.with_suffix(".txt").write_text(text)
    print(f"{place}.txt: {event.kind}: {event.what}", flush=True)


def main() -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="of the run")
    parser.add_argument("--first", type=int, default=0, help="number of the first program")
    parser.add_argument("--count", type=int, help="how many programs")
    parser.add_argument("--seconds", type=float, help="for how long")
    parser.add_argument("--largest", type=int, default=12, help="calls of the largest program")
    parser.add_argument("--limit", type=float, default=120, help="seconds until a step hangs")
    parser.add_argument("--models", action="store_true", help="partitions of random ONNX models")
    parser.add_argument("--findings", type=pathlib.Path, default=pathlib.Path("build/fuzz/relay"))
    args = parser.parse_args()
    if args.count is None and args.seconds is None:
        args.seconds = 600.0
    counts = run(**vars(args))
    return 1 if any(counts[kind] for kind in FAILED) else 0


if __name__ == "__main__":
    sys.exit(main())
