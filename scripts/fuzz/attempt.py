"""One case, built and run by Baton and compared with onnxruntime, in the process that calls it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from . import known, values
from .evaluate import (
    EvaluationError,
    NodeRunner,
    Value,
    by_onnxruntime,
    free_names,
    opset_of,
    session,
)
from .judge import judge

DIVISION = "a division by zero"
FAILURES = ("wrong", "unjudged", "exception", "accepted", "raised", "crash", "hang", "slow")
"""Kinds of events that are findings."""


@dataclass(frozen=True)
class Config:
    """How a case is built: `opt_level`, a target string, a precision."""

    level: int
    target: str
    precision: str = "default"


@dataclass(frozen=True)
class Event:
    """What became of a case in one configuration, or before any."""

    kind: str
    """One of `FAILURES`, or "agree", "refused", "unclear" (a rejection that passes on an error of
    TVM), "undefined", "onnxruntime", "built"."""
    what: str = ""
    """What is wrong, or why it was rejected; without what differs from case to case."""
    config: Config | None = None
    feed: str = ""
    """Kind of the inputs, or ""."""
    seconds: float = 0.0
    """Of "built": CPU seconds per kernel."""


@dataclass(frozen=True)
class Step:
    """What is under way: "draw", "reference", "import", "build" or "run", and of what."""

    name: str
    config: Config | None = None
    feed: str = ""


Feeds = Mapping[str, Mapping[str, np.ndarray]]
Say = Callable[[Step], None]


@dataclass
class Expected:
    """What a feed should give: values, an error, or nothing that is known."""

    values: list[Value] | None = None
    error: str = ""


def attempt(
    model: onnx.ModelProto,
    feeds: Feeds,
    configs: Sequence[Config],
    say: Say = lambda step: None,
    skip: Sequence[str] = (),
) -> list[Event]:
    """Build a model in every configuration, run it on every feed and compare.

    `say` is called before every step, to attribute a crash to it. On the feeds in `skip`,
    onnxruntime ends the process: Baton must only survive them.
    """
    from compiler.relay.frontend import from_onnx

    expected = {kind: _expect(model, feeds[kind], kind, skip, say) for kind in feeds}
    say(Step("import"))
    try:
        mod, params = from_onnx(model)
    except Exception as error:
        return [refusal(error, None)]
    events = []
    for config in configs:
        say(Step("build", config))
        started = time.process_time()
        try:
            library = build(mod, params, config)
        except Exception as error:
            events.append(refusal(error, config))
            continue
        seconds = (time.process_time() - started) / (1 + len(library.report.kernels))
        events.append(Event("built", config=config, seconds=seconds))
        for kind, feed in feeds.items():
            say(Step("run", config, kind))
            events.append(_compare(library, model, feed, kind, expected[kind], config))
    return events


def _expect(
    model: onnx.ModelProto, feed: Mapping[str, np.ndarray], kind: str, skip: Sequence[str], say: Say
) -> Expected:
    if kind == values.ZERO:  # onnxruntime divides, and the process ends
        return Expected(error=DIVISION)
    if kind in skip:
        return Expected()
    say(Step("reference", feed=kind))
    try:
        opened = session(model)
    except EvaluationError:
        opened = None
    try:
        if opened is not None:
            return Expected(by_onnxruntime(opened, feed))
        found = NodeRunner(opset_of(model)).run_all(model, feed)
        return Expected([found[value.name] for value in model.graph.output])
    except EvaluationError as error:
        return Expected(error=str(error))


def outputs(library: Any, feed: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Run a library."""
    import tvm

    from compiler.runtime import graph_executor

    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    for name, array in feed.items():
        module.set_input(name, array)
    module.run()
    return [module.get_output(i).numpy() for i in range(module.get_num_outputs())]


def build(mod: Any, params: Any, config: Config) -> Any:
    """Build a module as the configuration says."""
    from compiler import PassContext, relay

    options = {"baton.precision": config.precision} if config.precision != "default" else {}
    with PassContext(opt_level=config.level, config=options):
        return relay.build(mod, target=config.target, params=params)


def _compare(
    library: Any,
    model: onnx.ModelProto,
    feed: Mapping[str, np.ndarray],
    kind: str,
    expected: Expected,
    config: Config,
) -> Event:
    from compiler.errors import BatonError, DivisionByZeroError, IndexRangeError

    try:
        got = outputs(library, feed)
    except (DivisionByZeroError, IndexRangeError) as error:
        # Stricter than onnxruntime on indices that are meant to be wrong is right.
        if expected.values is None or kind == values.OUTSIDE:
            return Event("agree", config=config, feed=kind)
        return Event("raised", normal(error), config, kind)
    except BatonError as error:
        bad = expected.values is not None
        return Event("raised" if bad else "agree", normal(error), config, kind)
    except Exception as error:
        return Event("exception", f"run: {normal(error)}", config, kind)
    if expected.error:
        if kind in (values.OUTSIDE, values.ZERO) and not _unread(model, expected.error):
            return Event("accepted", expected.error[:120], config, kind)
        return Event("undefined", "onnxruntime raises", config, kind)
    if expected.values is None:
        return Event("undefined", "onnxruntime ends the process", config, kind)
    verdict = judge(model, feed, expected.values, got)
    return Event(verdict.kind, verdict.what, config, kind)


def _unread(model: onnx.ModelProto, error: str) -> bool:
    """Whether values may go unused, so that a wrong one is not noticed.

    That is so of some operators, and of the one that `error` says raised where nothing but an
    empty tensor depends on it.
    """
    if any(node.op_type in known.VALUES_UNREAD for node in model.graph.node):
        return True
    raised = re.search(r"running (\w+) node", error)
    operators = ("Div", "Mod") if error == DIVISION else raised.groups() if raised else ()
    return any(
        node.op_type in operators for node in model.graph.node if not _is_needed(node, model)
    )


def _is_needed(node: onnx.NodeProto, model: onnx.ModelProto) -> bool:
    """Whether elements of an output depend on a node, as far as the model says extents."""
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    empty = {
        value.name
        for value in (*inferred.value_info, *inferred.output)
        for dim in value.type.tensor_type.shape.dim
        if dim.HasField("dim_value") and dim.dim_value == 0
    }
    needed = {value.name for value in model.graph.output} - empty
    for each in reversed(model.graph.node):
        if not needed.isdisjoint(each.output):
            if each == node:
                return True
            needed.update(name for name in free_names(each) if name not in empty)
    return False


def refusal(error: Exception, config: Config | None) -> Event:
    """An error of Baton's own is a refusal; one that hands on somebody else's is unclear."""
    from compiler.errors import BatonError

    stage = "build" if config else "import"
    if not isinstance(error, BatonError):
        return Event("exception", f"{stage}: {normal(error)}", config)
    handed_on = error.__cause__ is not None and not isinstance(error.__cause__, BatonError)
    return Event("unclear" if handed_on else "refused", normal(error), config)


def normal(error: BaseException) -> str:
    """An error without what differs from case to case: names, numbers, types."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = next((line for line in reversed(lines) if not line.startswith("File ")), "")
    if lines and "operator " in lines[0]:
        text = lines[0]
    text = re.sub(r"of node '[^']*' -> '[^']*'", "", text)
    text = re.sub(r"R\.Tensor\([^)]*\)[^\]]*\)?|\[[^\]]*\]", "[]", text)
    text = re.sub(r"'[^']*'|0x[0-9a-f]+", "'..'", text)
    text = re.sub(r"\b[vx]\d+\b|-?\d+(\.\d+)?", "N", text)
    return f"{type(error).__name__}: {text}"[:220]
