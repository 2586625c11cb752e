#!/usr/bin/env python3
"""Every ONNX operator with every axis of its inputs at extents 0 and 1, against onnxruntime.

    python -m scripts.fuzz.run_extents --cases 2                  # two cases of each operator
    python -m scripts.fuzz.run_extents --operators CumSum Pad     # only these
    python -m scripts.fuzz.run_extents --operators Pad --first 7 --cases 1 --modes open

A case is a node of a maker, or of ONNX's own node tests for the operators that no maker draws, and
one axis of one input. In the mode "static" the axis has the extent 0, then 1, in models of their
own. In the mode "open" one build has a dynamic axis and runs at 0, at 1 and at an ordinary extent.
Where onnxruntime rejects both extents, all axes of the same extent change together.

Workers run with guard pages around TVM's tensors (`guard.c`) and with glibc's heap checks, so that
an access out of bounds ends them.
The exit status is 1 if there are findings. docs/fuzzing.md says how to read them.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper

from compiler.errors import BatonError
from scripts.fuzz import pool
from scripts.fuzz.attempt import Config, Event, Expected, Say, Step, build, normal, outputs, refusal
from scripts.fuzz.draft import Draft
from scripts.fuzz.evaluate import (
    EvaluationError,
    NodeRunner,
    by_onnxruntime,
    opset_of,
    quiet,
    session,
)
from scripts.fuzz.generator import OPSETS, finish
from scripts.fuzz.judge import judge
from scripts.fuzz.operators import MAKERS, NOT_DRAWN, available

STATIC, OPEN = "static", "open"
FAILED = ("wrong", "unjudged", "exception", "accepted", "raised", "refused", "crash", "hang")
"""Kinds of events that are findings, but for those of axes that have to be static."""
GUARDED = "BATON_FUZZ_GUARDED"
TRIES = 400
CONFIG = Config(3, "llvm -opt-level=0")

Feed = dict[str, np.ndarray]


class Ordinary(Draft):
    """A draft whose extents are 2 or more, where its maker leaves the choice."""

    def extent(self, high: int = 16) -> int:
        """An extent of an axis."""
        return min(int(self.one_of((2, 3, 4, 5, 7))), high)


@dataclass(frozen=True)
class Base:
    """A model of one operator with ordinary extents, and its inputs."""

    model: onnx.ModelProto
    feed: Feed

    def axes(self) -> list[tuple[str, int]]:
        """Axes of the inputs, by name and position."""
        return [(name, axis) for name, x in self.feed.items() for axis in range(x.ndim)]


def sources(op: str) -> int:
    """The number of different cases of an operator; 0 is any number of random ones."""
    return 0 if op in MAKERS else len(_node_tests().get(op, []))


@lru_cache(maxsize=8)
def base(op: str, number: int) -> Base | None:
    """Case `number` of an operator, which onnxruntime runs; None where there is none."""
    if op not in MAKERS:
        given = _node_tests()[op][number]
        return given if expect(given.model, given.feed).values is not None else None
    for attempt in range(TRIES):
        rng = np.random.default_rng([zlib.crc32(op.encode()), number, attempt])
        opsets = [opset for opset in OPSETS if op in available(opset)]
        draft = Ordinary(rng, int(rng.choice(opsets[-5:] if number % 2 else opsets)))
        try:
            MAKERS[op](draft, op)
            case = finish(draft)
            feed = case.feeds["plain"]
            by_onnxruntime(session(case.model), feed)
        except (EvaluationError, defs.SchemaError):
            continue
        if any(x.ndim and x.size for x in feed.values()):
            return Base(case.model, feed)
    return None


@cache
def _node_tests() -> dict[str, list[Base]]:
    """ONNX's node tests of the operators that no maker draws."""
    from onnx.backend.test.case.node import collect_testcases

    found: dict[str, list[Base]] = defaultdict(list)
    with quiet():
        tests = sorted(collect_testcases(None), key=lambda test: str(test.name))
    for test in tests:
        nodes, inputs = test.model.graph.node, test.data_sets[0][0]
        op = f"{nodes[0].domain}.{nodes[0].op_type}" if nodes[0].domain else nodes[0].op_type
        arrays = [x for x in inputs if isinstance(x, np.ndarray)]
        if len(nodes) == 1 and op in NOT_DRAWN and len(arrays) == len(inputs):
            test.model.ir_version = min(test.model.ir_version, 10)
            named = zip(test.model.graph.input, arrays, strict=True)
            found[op].append(Base(test.model, {value.name: x for value, x in named}))
    return found


# ---------------------------------------------------------------- one axis


def resized(x: np.ndarray, axis: int, extent: int) -> np.ndarray:
    """An array with as many elements along an axis, the first ones, over and over."""
    if not x.shape[axis]:
        shape = (*x.shape[:axis], extent, *x.shape[axis + 1 :])
        return np.ones(shape, x.dtype)
    return np.take(x, np.arange(extent) % x.shape[axis], axis)


@dataclass(frozen=True)
class Variant:
    """A model in which some axes have other extents, or dynamic ones."""

    base: Base
    axes: tuple[tuple[str, int], ...]

    def feed(self, extent: int) -> Feed:
        """Inputs, and weights that change, with this extent."""
        arrays = dict(self.base.feed)
        for name, axis in self.axes:
            x = arrays[name] if name in arrays else self._weights()[name]
            arrays[name] = resized(x, axis, extent)
        return arrays

    def _weights(self) -> Feed:
        return {t.name: numpy_helper.to_array(t) for t in self.base.model.graph.initializer}

    def model(self, extent: int | str) -> onnx.ModelProto:
        """The model with this extent; weights that change are inputs."""
        model = onnx.ModelProto()
        model.CopyFrom(self.base.model)
        graph = model.graph
        changed = {name for name, _ in self.axes}
        kept = [t for t in graph.initializer if t.name not in changed]
        del graph.initializer[:], graph.input[:]
        graph.initializer.extend(kept)
        for name, x in self.feed(1).items():
            dims: list[int | str] = list(x.shape)
            for changing, axis in self.axes:
                if changing == name:
                    dims[axis] = extent
            element = helper.np_dtype_to_tensor_dtype(x.dtype)
            graph.input.append(helper.make_tensor_value_info(name, element, dims))
        for value in graph.output:  # node tests state shapes
            value.type.tensor_type.ClearField("shape")
            if not value.type.tensor_type.elem_type:
                value.ClearField("type")
        return model


def variants(case: Base, name: str, axis: int) -> Iterator[Variant]:
    """The axis alone, then together with all of the same extent."""
    yield Variant(case, ((name, axis),))
    extent = case.feed[name].shape[axis]
    weights = {t.name: tuple(t.dims) for t in case.model.graph.initializer}
    shapes = {**{key: x.shape for key, x in case.feed.items()}, **weights}
    linked = [(k, i) for k, shape in shapes.items() for i, n in enumerate(shape) if n == extent]
    if len(linked) > 1:
        yield Variant(case, tuple(linked))


def expect(model: onnx.ModelProto, feed: Feed) -> Expected:
    """The result or the error of onnxruntime.

    Where it rejects a convolution of an image without elements, nodes are run one by one.
    """
    try:
        return Expected(by_onnxruntime(session(model), feed))
    except EvaluationError as error:
        if "running Conv node" in str(error):
            with contextlib.suppress(EvaluationError):
                values = NodeRunner(opset_of(model)).run_all(model, feed)
                return Expected([values[value.name] for value in model.graph.output])
        return Expected(error=str(error))


@dataclass(frozen=True)
class Axes:
    """The axes of a case, for `pool.Worker`."""

    op: str
    number: int
    skip: tuple[str, ...] = ()

    def run(self, say: Say, skip: Sequence[str]) -> pool.Outcome:
        """Draw the case; the outcome's operators are its axes."""
        say(Step("draw"))
        drawn = base(self.op, self.number)
        axes = drawn.axes() if drawn else []
        return pool.Outcome([], tuple(f"{name} {axis}" for name, axis in axes))


@dataclass(frozen=True)
class Extents:
    """One axis of a case in one mode, for `pool.Worker`."""

    op: str
    number: int
    name: str
    axis: int
    mode: str
    config: Config = CONFIG
    skip: tuple[str, ...] = ()

    def run(self, say: Say, skip: Sequence[str]) -> pool.Outcome:
        """Compare with onnxruntime at every extent."""
        _guard_storage()
        say(Step("draw"))
        case = base(self.op, self.number)
        assert case is not None
        return pool.Outcome(list(self._events(case, say, skip)), (self.op,))

    def _events(self, case: Base, say: Say, skip: Sequence[str]) -> Iterator[Event]:
        ordinary = case.feed[self.name].shape[self.axis]
        ordinary = ordinary if ordinary > 1 else 3
        sizes = (0, 1) if self.mode == STATIC else (0, 1, ordinary)
        chosen = None
        for variant in variants(case, self.name, self.axis):
            expected = {}
            for size in sizes:
                say(Step("reference", feed=str(size)))
                crashes = str(size) in skip
                model = variant.model(size if self.mode == STATIC else "n")
                expected[size] = Expected() if crashes else expect(model, variant.feed(size))
            if chosen is None or any(each.values is not None for each in expected.values()):
                chosen = variant, expected
            if any(each.values is not None for n, each in expected.items() if n < 2):
                break
        assert chosen is not None
        variant, expected = chosen
        if self.mode == OPEN:
            yield from self._built(variant.model("n"), variant, expected, say)
            return
        for size in sizes:
            yield from self._built(variant.model(size), variant, {size: expected[size]}, say)

    def _built(
        self, model: onnx.ModelProto, variant: Variant, expected: Mapping[int, Expected], say: Say
    ) -> Iterator[Event]:
        from compiler.relay.frontend import from_onnx

        fine = any(each.values is not None for each in expected.values())
        sizes = ",".join(map(str, expected))
        try:
            say(Step("import", self.config, sizes))
            mod, params = from_onnx(model)
            say(Step("build", self.config, sizes))
            library = build(mod, params, self.config)
        except Exception as error:
            event = refusal(error, self.config)
            kind = event.kind if event.kind == "exception" or fine else "agree"
            yield Event("refused" if kind == "unclear" else kind, event.what, self.config, sizes)
            return
        for size, each in expected.items():
            say(Step("run", self.config, str(size)))
            kind, what = outcome(library, model, variant.feed(size), each)
            yield Event(kind, what, self.config, str(size))


def outcome(
    library: Any, model: onnx.ModelProto, feed: Feed, expected: Expected
) -> tuple[str, str]:
    """Run a library and compare: the kind of an event, and why.

    Empty results are "lenient" where onnxruntime raises.
    """
    try:
        got = outputs(library, feed)
    except BatonError as error:
        return ("agree" if expected.values is None else "raised"), normal(error)
    except Exception as error:
        return "exception", f"run: {normal(error)}"
    if expected.error:
        return ("accepted" if any(x.size for x in got) else "lenient"), expected.error[:160]
    if expected.values is None:
        return "undefined", "onnxruntime ends the process"
    verdict = judge(model, feed, expected.values, got)
    return verdict.kind, verdict.what


@cache
def _guard_storage() -> None:
    """Have virtual machines allocate each storage by itself, so that the guard pages touch it."""
    import tvm.runtime.vm

    machine = tvm.runtime.vm.VirtualMachine
    machine.POOLED_ALLOCATOR = machine.NAIVE_ALLOCATOR


# ---------------------------------------------------------------- the sweep


@dataclass(frozen=True)
class Plan:
    """What a sweep covers, from its command line."""

    operators: Sequence[str] | None = None
    cases: int = 2
    first: int = 0
    seconds: float | None = None
    jobs: int = 1
    limit: float = 120.0
    level: int = 3
    modes: Sequence[str] = (STATIC, OPEN)


@dataclass
class Sweep:
    """Counts of a sweep under way."""

    plan: Plan
    kinds: Counter[str] = field(default_factory=Counter)
    swept: set[tuple[str, int, str, int, str]] = field(default_factory=set)
    missing: list[str] = field(default_factory=list)
    found: dict[tuple[str, str, str, str], list[str]] = field(
        default_factory=lambda: defaultdict(list)
    )
    lock: threading.Lock = field(default_factory=threading.Lock)

    def one(self, worker: pool.Worker, case: tuple[str, int]) -> None:
        """Sweep all axes of a case in all modes."""
        op, number = case
        axes = worker.run(Axes(op, number)).operators
        if not axes:
            self.missing.append(op)
        config = Config(self.plan.level, CONFIG.target)
        for text in axes:
            name, axis = text.split()
            for mode in self.plan.modes:
                task = Extents(op, number, name, int(axis), mode, config)
                events = worker.run(task).events
                with self.lock:
                    self.swept.add((op, number, name, int(axis), mode))
                    for event in events:
                        self._note(task, event)

    def _note(self, task: Extents, event: Event) -> None:
        self.kinds[event.kind] += 1
        if event.kind not in FAILED:
            return
        key = (event.kind, task.op, task.mode, event.what)
        where = f"{task.number}:{task.name}:{task.axis} at {event.feed}"
        if not self.found[key]:
            print(f"{event.kind}: {task.op} {task.mode} {where}: {event.what}", flush=True)
        self.found[key].append(where)

    def summary(self) -> str:
        """What was swept and found."""
        operators = {each[0] for each in self.swept}
        axes = {each[:4] for each in self.swept}
        lines = [
            f"{len(operators)} operators, {len(axes)} axes, {len(self.swept)} axes in modes",
            "outcomes: " + ", ".join(f"{n} {kind}" for kind, n in sorted(self.kinds.items())),
            f"without a case: {', '.join(dict.fromkeys(self.missing)) or 'none'}",
            f"{len(self.found)} findings:",
        ]
        for (kind, op, mode, what), where in sorted(self.found.items()):
            lines.append(f"  {len(where):4d} {kind}: {op} {mode} {what}  ({'; '.join(where[:3])})")
        return "\n".join(lines)


def run(plan: Plan) -> int:
    """Sweep as the plan says and print what was found; returns the exit status."""
    pool.prepare()
    sweep = Sweep(plan)
    operators = plan.operators or (*MAKERS, *_node_tests())
    cases = [
        (op, number)
        for number in range(plan.first, plan.first + plan.cases)
        for op in sorted(operators)
        if not sources(op) or number < sources(op)
    ]
    with pool.own_environment():
        pool.run_in_workers(
            cases, sweep.one, limit=plan.limit, seconds=plan.seconds, jobs=plan.jobs
        )
    print(sweep.summary())
    return 1 if sweep.found else 0


def guarded(folder: pathlib.Path) -> dict[str, str]:
    """Environment in which TVM's tensors have guard pages and glibc checks its heap.

    Without a C compiler or glibc's debugging library it lacks that part.
    """
    loaded = []
    library = folder / "guard.so"
    source = pathlib.Path(__file__).with_name("guard.c")
    command = ["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    if subprocess.run(command, check=False).returncode == 0:
        loaded.append(str(library))
    debug = "libc_malloc_debug.so.0"
    trial = {**os.environ, "LD_PRELOAD": debug}
    shown = subprocess.run([sys.executable, "-c", ""], env=trial, capture_output=True, check=False)
    if not shown.stderr:  # the loader says there if it has none
        loaded.append(debug)
    return {"LD_PRELOAD": " ".join(loaded), "MALLOC_CHECK_": "3", GUARDED: "1"}


def main() -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--operators", nargs="*", help="only these operators")
    parser.add_argument("--cases", type=int, default=2, help="cases of each operator")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seconds", type=float, help="for how long")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes")
    parser.add_argument("--limit", type=float, default=120, help="CPU seconds until a step hangs")
    parser.add_argument("--level", type=int, default=3, help="opt_level")
    parser.add_argument("--modes", nargs="*", default=[STATIC, OPEN])
    args = parser.parse_args()
    if GUARDED not in os.environ:  # the loader reads LD_PRELOAD when a process starts
        with tempfile.TemporaryDirectory(prefix="guard-") as folder:
            env = {**os.environ, **guarded(pathlib.Path(folder))}
            return subprocess.run(
                [sys.executable, "-m", "scripts.fuzz.run_extents", *sys.argv[1:]],
                env=env,
                check=False,
            ).returncode
    return run(Plan(**vars(args)))


if __name__ == "__main__":
    sys.exit(main())
