"""Whether two results agree, as far as rounding lets them, and which of two is wrong.

Tolerances are derived: the graph is run node by node on onnxruntime several times, each time with
the operands and results of every node that rounds changed by random errors of the size that its
kind of operator makes (`known.rounding`), and once with denormals as zeros. How far the results
move is how far a right result may be off; an element that is finite in one run and not in another
may be either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx

from . import known
from .evaluate import (
    EvaluationError,
    NodeRunner,
    Value,
    constants_of,
    free_names,
    nodes_for,
    opset_of,
    quiet,
)

RUNS = 8
SAFETY = 6.0
"""Random errors meet the worst case rarely."""

QUICK = {"float16": 2.0, "float32": 8.0, "float64": 16.0}
"""Relative and absolute difference, in epsilons, that needs no derived tolerance."""


@dataclass
class Spread:
    """How far results move under rounding."""

    runs: list[dict[str, Value]]
    """Results by name; the first run is the unchanged one."""
    undefined: dict[str, tuple[str, str]]
    """Results that ONNX does not define ("undefined") or that onnxruntime is known to have wrong
    ("onnxruntime"), with the reason."""


def spread_of(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], wanted: str) -> Spread:
    """Run what one value needs, node by node, with and without errors.

    Raises EvaluationError: a node can't be run, and its results are not undefined either.
    """
    runner, nodes = NodeRunner(opset_of(model)), nodes_for(model, wanted)
    constants = constants_of(model)
    runs: list[dict[str, Value]] = []
    undefined: dict[str, tuple[str, str]] = {}
    with quiet():
        for run in range(RUNS):
            errors = _Errors(0, run)
            values: dict[str, Value] = {**constants, **feeds}
            if run == 1:
                values = {name: _flushed(value) for name, value in values.items()}
            for node in nodes:
                given = {name: values[name] for name in free_names(node)}
                if run == 0:
                    reason = _undefined(node, given, undefined)
                    if reason is not None:
                        undefined.update(dict.fromkeys(node.output, reason))
                operands, results, absolute = known.rounding(node.op_type)
                if run:
                    still = known.parameters(node)
                    given = {
                        k: v if k in still else _moved(v, errors, operands, 0, node.op_type)
                        for k, v in given.items()
                    }
                try:
                    made = runner.run(node, given)
                except EvaluationError:
                    if node.output[0] in undefined:
                        return Spread(runs, undefined)
                    raise
                if run:
                    made = {
                        k: _moved(v, errors, results, absolute, node.op_type)
                        for k, v in made.items()
                    }
                if run == 1:
                    made = {k: _flushed(v) for k, v in made.items()}
                values.update(made)
            runs.append(values)
    return Spread(runs, undefined)


def _undefined(
    node: onnx.NodeProto, given: Mapping[str, Value], before: Mapping[str, tuple[str, str]]
) -> tuple[str, str] | None:
    for name in given:
        if name in before:
            return before[name]
    operands = [given[name] for name in node.input if name]
    for kind, table in (("undefined", known.UNDEFINED), ("onnxruntime", known.FAULTS)):
        reason = known.reason(table, node, operands)
        if reason is not None:
            return kind, reason
    if known.overflows(node, [x for x in operands if not isinstance(x, list)]):
        return "undefined", "intermediate results that may overflow"
    return None


class _Errors:
    """Errors from -1 to 1 of a run: random ones, and in two of the runs the largest of one sign.

    Where a result is next to a step, as of Ceil, random ones may all be on one side of it.
    """

    def __init__(self, seed: int, run: int):
        self.rng = np.random.default_rng([seed, run])
        self.sign = {2: 1.0, 3: -1.0}.get(run)

    def __call__(self, shape: tuple[int, ...]) -> np.ndarray:
        drawn = self.rng.uniform(-1, 1, shape) if self.sign is None else np.full(shape, self.sign)
        return np.asarray(drawn)


def _moved(value: Value, errors: _Errors, relative: float, absolute: float, op: str) -> Value:
    """A value with rounding errors, in epsilons of its dtype."""
    if isinstance(value, list) or value.dtype.kind != "f" or not (relative or absolute):
        return value
    epsilon = known.coarsest(op, value.dtype)
    wide = value.astype("float64")
    factor = 1 + relative * epsilon * errors(value.shape) * np.sign(wide)
    moved = wide * factor + absolute * epsilon * errors(value.shape)
    return np.where(np.isfinite(wide), moved, wide).astype(value.dtype)


def _flushed(value: Value) -> Value:
    if isinstance(value, list) or value.dtype.kind != "f":
        return value
    return np.where(np.abs(value) < np.finfo(value.dtype).tiny, 0, value).astype(value.dtype)


def difference(
    expected: np.ndarray, got: np.ndarray, samples: list[np.ndarray] | None = None
) -> str:
    """What tells two results apart; "" where they agree.

    `samples` are the same result of the runs of a `Spread`; without, the quick tolerance holds.
    """
    if got.dtype != expected.dtype:
        return f"dtype {got.dtype}, not {expected.dtype}"
    same_shape = [s for s in samples or [] if s.shape == expected.shape]
    if got.shape != expected.shape:
        if samples and any(s.shape == got.shape for s in samples):
            return ""
        return f"shape {got.shape}, not {expected.shape}"
    if samples and len(same_shape) < len(samples):
        return ""
    with quiet():
        if expected.dtype.kind != "f":
            wrong = got != expected
            for sample in same_shape:
                wrong &= sample == expected
        else:
            wrong = _float_difference(expected, got, same_shape)
    if not wrong.any():
        return ""
    at = np.unravel_index(int(np.argmax(wrong)), wrong.shape) if wrong.ndim else ()
    place = f" at {tuple(int(i) for i in at)}" if wrong.ndim else ""
    return f"{got[at]!r}, not {expected[at]!r}{place}; {int(wrong.sum())} of {wrong.size} differ"


def _float_difference(
    expected: np.ndarray, got: np.ndarray, samples: list[np.ndarray]
) -> np.ndarray:
    info = np.finfo(expected.dtype)
    e, g = expected.astype("float64"), got.astype("float64")
    quick = QUICK[str(expected.dtype)] * float(info.eps)
    tolerance = quick * np.abs(e) + (float(info.tiny) if samples else quick)
    stable = np.ones(e.shape, bool)
    low, high = e.copy(), e.copy()
    for sample in samples:
        s = sample.astype("float64")
        stable &= (np.isnan(s) == np.isnan(e)) & (np.isinf(s) == np.isinf(e))
        low, high = np.fmin(low, s), np.fmax(high, s)
    if samples:
        tolerance = tolerance + SAFETY * (high - low)
    # A result near the largest number may overflow.
    near = np.abs(e) > float(info.max) * (1 - 64 * float(info.eps))
    off = np.where(np.isfinite(e) & np.isfinite(g), np.abs(e - g) > tolerance, e != g)
    off &= ~(np.isnan(e) & np.isnan(g))
    return np.asarray(off & stable & ~(near & np.isinf(g)))


@dataclass(frozen=True)
class Outcome:
    """Who is wrong: "agree", "wrong", "unjudged" (no evaluator can tell), "onnxruntime" or
    "undefined"."""

    kind: str
    what: str = ""


def _where_they_part(model: onnx.ModelProto, spread: Spread, other: Mapping[str, Value]) -> str:
    """The operator from which on onnxruntime has something else than the reference evaluator."""
    for node in model.graph.node:
        for name in node.output:
            samples = [run[name] for run in spread.runs if name in run and name in other]
            # A sequence is no array, and the evaluators differ in what an optional value is.
            if samples and all(isinstance(x, np.ndarray) for x in (samples[0], other[name])):
                what = difference(samples[0], other[name], samples)
                if what:
                    return f"{node.op_type} of {samples[0].dtype}"
    return "the whole graph"


def judge(
    model: onnx.ModelProto,
    feeds: Mapping[str, np.ndarray],
    expected: list[Value],
    got: list[np.ndarray],
) -> Outcome:
    """Compare all outputs; where they differ, find out whose fault it is."""
    names = [value.name for value in model.graph.output]
    if len(expected) != len(got):
        return Outcome("wrong", f"{len(got)} outputs, not {len(expected)}")
    off = [i for i in range(len(names)) if difference(expected[i], got[i])]
    if not off:
        return Outcome("agree")
    excused = Outcome("agree")
    for i in off:
        name = names[i]
        try:
            spread = spread_of(model, feeds, name)
        except EvaluationError as error:
            return Outcome("unjudged", f"{difference(expected[i], got[i])} ({error})")
        samples = [run[name] for run in spread.runs]
        what = difference(expected[i], got[i], samples)
        if not what:
            continue
        if name in spread.undefined:
            excused = Outcome(*spread.undefined[name])
            continue
        what = f"output {i}: {what}"
        try:
            runner = NodeRunner(opset_of(model), reference_first=True)
            judged = runner.run_all(model, feeds, name)
        except EvaluationError:
            return Outcome("unjudged", what)
        third = judged[name]
        same = not difference(third, expected[i], samples)
        sided = same and _float32_sides_with(model, feeds, name, expected[i], got[i], samples)
        if difference(third, got[i], samples) and not sided:
            return Outcome("wrong" if same else "unjudged", what)
        excused = Outcome("onnxruntime", _where_they_part(model, spread, judged))
    return excused


def _float32_sides_with(
    model: onnx.ModelProto,
    feeds: Mapping[str, np.ndarray],
    name: str,
    expected: np.ndarray,
    got: np.ndarray,
    samples: list[np.ndarray],
) -> bool:
    """Whether onnxruntime has NaN and infinities, and what is made of them, as Baton has them where
    it has the operators of a graph in float32 alone, so that the reference evaluator was the only
    judge."""
    if expected.dtype.kind not in "fb" or expected.shape != got.shape:
        return False
    try:
        single = NodeRunner(opset_of(model), in_float32=True).run_all(model, feeds, name)[name]
    except EvaluationError:
        return False
    if expected.dtype.kind == "b":
        return np.array_equal(single, got)
    finite = np.isfinite(expected) & np.isfinite(got)
    numbers = [np.where(finite, x, 0).astype(x.dtype) for x in (expected, got, *samples)]
    if difference(numbers[0], numbers[1], numbers[2:]):
        return False
    return np.array_equal(
        np.where(finite, 0, single.astype(got.dtype)), np.where(finite, 0, got), equal_nan=True
    )
