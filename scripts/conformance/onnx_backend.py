#!/usr/bin/env python3
"""Run ONNX's own node tests through `from_onnx` and a CPU build, and record what passes.

    python -m scripts.conformance.onnx_backend  # all cases; writes tests/onnx_backend.md
    python -m scripts.conformance.onnx_backend --check          # fails where the record is not true
    python -m scripts.conformance.onnx_backend --check --sample 60 --seed $(git rev-parse HEAD)
    python -m scripts.conformance.onnx_backend -k test_resize_  # some cases, printed only
    python -m scripts.conformance.onnx_backend -k test_resize_ --update

Failing cases are counted by cause.

Every case runs in a worker process, so that a crash or a hang costs one case. ONNX passes shapes,
axes and other operands as run-time inputs. Where such an operand must be known to import or build,
the case is run again with its operands as initializers, and recorded as passing "with constant
operands".

The record says of every case whether it passes, so that a check of any of them can find it wrong:
a case that fails is a fault of the code, one that passes though recorded as failing says that the
record is old. The tests check some cases of every commit, other ones each time.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import pathlib
import random
import re
import sys
import threading
import time
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECORD = ROOT / "tests" / "onnx_backend.md"
BY_CPU = frozenset(["test_attention_4d_causal_fp16", "test_attention_4d_causal_fp16_expanded"])
"""Cases whose halves round one way or the other by the order in which a CPU's vectors sum up."""
TIMEOUT_SECONDS = 60.0
PASS, PASS_CONSTANT = "pass", "pass with constant operands"

Outcome = tuple[str, str]
"""What became of a case (`PASS`, `PASS_CONSTANT` or the stage that failed) and why."""


# ---------------------------------------------------------------- one case, in a worker


def build(mod: Any, params: dict[str, Any]) -> Callable[[dict[str, np.ndarray]], list[Any]]:
    """Build a module for this CPU; the result maps inputs by name to the outputs in order."""
    import tvm

    from compiler import relay
    from compiler.runtime import graph_executor

    library = relay.build(mod, target="llvm", params=params)
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))

    def call(inputs: dict[str, np.ndarray]) -> list[Any]:
        for name, value in inputs.items():
            module.set_input(name, value)
        module.run()
        return [module.get_output(i).numpy() for i in range(module.get_num_outputs())]

    return call


def run_case(case: Any) -> Outcome:
    """Import, build and run one ONNX test case and compare its outputs."""
    given = _run(case.model, case, constants=())
    constants = _operands(case)
    if given[0] not in ("import", "build") or not constants:
        return given
    known = _run(_with_constants(case, constants), case, constants)
    if known[0] == PASS:
        return PASS_CONSTANT, ""
    return given if known[0] == "import" else known


def _run(model: Any, case: Any, constants: tuple[str, ...]) -> Outcome:
    from onnx.backend.test.runner import Runner

    from compiler.relay.frontend import from_onnx

    stage = "import"
    try:
        mod, params = from_onnx(model, shape=_shapes(case))
        stage = "build"
        call = build(mod, params)
        names = [value.name for value in case.model.graph.input]
        for inputs, expected in case.data_sets:
            stage = "run"
            feeds = dict(zip(names, map(_array, inputs)))
            feeds = {name: value for name, value in feeds.items() if name not in constants}
            outputs = _like(iter(call(_tensors_of(feeds))), expected)
            stage = "compare"
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                Runner.assert_similar_outputs(_array(expected), outputs, case.rtol, case.atol)
    except Exception as error:
        if os.environ.get("ONNX_BACKEND_TRACEBACK"):
            traceback.print_exc()
        return stage, _reason(error)
    return PASS, ""


def _shapes(case: Any) -> dict[str, Any]:
    """Shapes of the inputs that are sequences or optional values: their lengths must be known."""
    return {
        value.name: [np.shape(each) for each in data] if isinstance(data, list) else _shape(data)
        for value, data in zip(case.model.graph.input, map(_array, case.data_sets[0][0]))
        if value.type.WhichOneof("value") in ("sequence_type", "optional_type")
    }


def _shape(data: Any) -> tuple[int, ...] | None:
    return None if data is None else np.shape(data)


def _tensors_of(feeds: dict[str, Any]) -> dict[str, np.ndarray]:
    """Inputs by name, those of a sequence by its name and their numbers."""
    found = {}
    for name, value in feeds.items():
        if isinstance(value, list):
            found.update({f"{name}_{index}": each for index, each in enumerate(value)})
        elif value is not None:
            found[name] = value
    return found


def _like(tensors: Iterator[np.ndarray], expected: Any) -> list[Any]:
    """Tensors, in lists as those are that are expected."""
    return [
        _like(tensors, each) if isinstance(each, (list, tuple)) else next(tensors)
        for each in expected
    ]


def _array(value: Any) -> Any:
    """A test datum as numpy arrays: some cases give tensor messages; None of no value."""
    import onnx

    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return [_array(item) for item in value]
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return np.asarray(value)


def _operands(case: Any) -> tuple[str, ...]:
    """Inputs that may be shapes, axes, bounds and the like: all but the data."""
    model, (inputs, _) = case.model, case.data_sets[0]
    return tuple(
        value.name
        for i, (value, array) in enumerate(zip(model.graph.input, inputs))
        if isinstance(array, (np.ndarray, np.generic))
        and (i > 0 or array.ndim == 0 or (array.dtype.kind in "iub" and array.ndim == 1))
    )


def _with_constants(case: Any, names: tuple[str, ...]) -> Any:
    """The model of `case` with its inputs `names` as initializers."""
    import onnx

    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    values = dict(zip([v.name for v in model.graph.input], case.data_sets[0][0]))
    kept = [value for value in model.graph.input if value.name not in names]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    for name in names:
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(values[name]), name))
    return model


def _reason(error: BaseException) -> str:
    """One line that says why a case failed."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, AssertionError):
        keep = ("Mismatched elements", "has incorrect shape", "Max absolute", "DESIRED", "ACTUAL")
        lines = [line for line in lines if line.startswith(keep) or "incorrect shape" in line][:2]
        lines = [", ".join(lines)] if lines else ["outputs differ"]
    text = lines[-1] if lines else type(error).__name__
    text = re.sub(r"of node '' -> '[^']*'", "", text).replace("|", "/")
    return f"{type(error).__name__}: {text}"[:180]


# ---------------------------------------------------------------- workers


def _serve(pipe: Connection, cases: list[Any]) -> None:
    if not os.environ.get("ONNX_BACKEND_TRACEBACK"):
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
    os.environ["TVM_NUM_THREADS"] = "1"
    warnings.simplefilter("ignore")
    while True:
        try:
            index = pipe.recv()
        except EOFError:
            return
        pipe.send(run_case(cases[index]))


def run_all(cases: list[Any], jobs: int, progress: bool) -> dict[str, Outcome]:
    """Run every case in `jobs` worker processes, which inherit the cases."""
    context = multiprocessing.get_context("fork")
    outcomes: dict[str, Outcome] = {}
    queue, lock = iter(range(len(cases))), threading.Lock()

    def started() -> tuple[Any, Connection]:
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, cases), daemon=True)
        process.start()
        theirs.close()
        return process, ours

    def answer(process: Any, pipe: Connection, index: int) -> Outcome | None:
        """Outcome of a case; None if the process died or timed out, and is gone."""
        try:
            pipe.send(index)
            if pipe.poll(TIMEOUT_SECONDS):
                outcome: Outcome = pipe.recv()
                return outcome
            process.kill()
        except (EOFError, OSError):
            pass
        process.join()
        return None

    def work(process: Any, pipe: Connection) -> None:
        while True:
            with lock:
                index = next(queue, None)
            if index is None:
                break
            outcome = answer(process, pipe, index)
            if outcome is None:
                code = process.exitcode
                hung = f"no answer in {TIMEOUT_SECONDS:.0f} s"
                outcome = ("crash", hung if code == -9 else f"exit {code}")
                with lock:
                    process, pipe = started()
            outcomes[cases[index].name] = outcome
            if progress and len(outcomes) % 50 == 0:
                passed = sum(kind in (PASS, PASS_CONSTANT) for kind, _ in outcomes.values())
                text = f"{len(outcomes)}/{len(cases)} run, {passed} pass"
                print(text, file=sys.stderr, flush=True)
        pipe.close()

    threads = [threading.Thread(target=work, args=started()) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def collect() -> list[Any]:
    """Node tests of the installed ONNX release, sorted by name."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sorted(collect_testcases(None), key=lambda case: str(case.name))


# ---------------------------------------------------------------- the record


def operator_of(case: Any) -> str:
    """The operator that a case is about: that of its first node."""
    name = str(case.name).removesuffix("_expanded")
    node = case.model.graph.node[0]
    if "_expanded" in name:
        return "function bodies"
    return f"{node.domain}.{node.op_type}" if node.domain else str(node.op_type)


def write_record(cases: list[Any], failing: dict[str, str], constant: set[str]) -> str:
    """The text of `tests/onnx_backend.md`: all node tests, the stage and reason of failing ones by
    name, and the names of those that pass only with constant operands."""
    import onnx

    lists: dict[str, list[str]] = defaultdict(list)
    for case in cases:
        if case.name in failing:
            lists[operator_of(case)].append(f"* `{case.name}`: {failing[case.name]}")
    known = defaultdict(list)
    for case in cases:
        if case.name in constant:
            known[operator_of(case)].append(case.name)
    count, more = sum(map(len, lists.values())), sum(map(len, known.values()))
    lines = [
        "# ONNX node tests",
        "",
        "Imported by `from_onnx`, built by baton.",
        "Written by `scripts/conformance/onnx_backend.py`; checked by its `--check`.",
        "",
        "| | cases |",
        "|---|---|",
        f"| all node tests of onnx {onnx.__version__} | {len(cases)} |",
        f"| pass as given | {len(cases) - count - more} |",
        f"| pass with constant operands (shapes, axes) | {more} |",
        f"| fail | {count} |",
        "",
        CONSTANT,
        "",
        *(f"* {operator}: {', '.join(known[operator])}" for operator in sorted(known)),
        "",
        "## Failing cases by operator",
        "",
    ]
    for operator in sorted(lists):
        lines += [f"### {operator} ({len(lists[operator])})", "", *lists[operator], ""]
    return "\n".join(lines).rstrip() + "\n"


CONSTANT = "## Cases that pass with constant operands"


def recorded_constant() -> set[str]:
    """Names of the cases that `tests/onnx_backend.md` lists as passing with constant operands."""
    section = RECORD.read_text().partition(CONSTANT)[2].partition("\n## ")[0]
    return set(re.findall(r"\btest_\w+", section))


def recorded() -> dict[str, str]:
    """Stage and reason of the cases that `tests/onnx_backend.md` lists as failing, by name."""
    return dict(re.findall(r"^\* `(\w+)`: (.*)$", RECORD.read_text(), re.MULTILINE))


def failures(outcomes: dict[str, Outcome]) -> dict[str, str]:
    """Stage and reason of the cases that fail, by name."""
    return {
        name: f"{kind}: {reason}"
        for name, (kind, reason) in outcomes.items()
        if kind not in (PASS, PASS_CONSTANT)
    }


def causes(failing: dict[str, str]) -> Iterator[str]:
    """How many cases fail for the same cause, most first, with one of them."""
    names = defaultdict(list)
    for name, reason in failing.items():
        cause = re.sub(r"[\[(].*|'[^']*'|(?<!\w)\d[\d.,]* ?", "", reason)
        names[re.sub(r" +", " ", cause).strip(" :")].append(name)
    for cause, those in sorted(names.items(), key=lambda item: -len(item[1])):
        yield f"{len(those):4} {cause} ({those[0]})"


def check(outcomes: dict[str, Outcome]) -> Iterator[str]:
    """Lines that name each case of which the record does not say what became of it."""
    known, failing = recorded(), failures(outcomes)
    for name in sorted(outcomes):
        if (name in known) != (name in failing) and name not in BY_CPU:
            yield f"{name}: {failing.get(name, 'passes, but is recorded as failing')}"


def check_set(cases: list[Any]) -> Iterator[str]:
    """A line if the record is of another set of node tests than `cases`, all that there are."""
    import onnx

    line = f"| all node tests of onnx {onnx.__version__} | {len(cases)} |"
    if line not in RECORD.read_text():
        yield f"these are {len(cases)} cases of onnx {onnx.__version__}, those recorded are others"


def main() -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the record")
    parser.add_argument("--update", action="store_true", help="write what some cases do, too")
    parser.add_argument("--sample", type=int, metavar="N", help="N cases, which --seed chooses")
    parser.add_argument("--seed", default="0", help="any text; the same cases for the same text")
    parser.add_argument("-k", dest="pattern", help="only cases whose name matches this expression")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="worker processes")
    args = parser.parse_args()
    started = time.monotonic()
    cases = collect()
    every, worse = cases, list(check_set(cases)) if args.check else []
    if args.pattern:
        cases = [case for case in cases if re.search(args.pattern, case.name)]
    if args.sample and args.sample < len(cases):
        chosen = random.Random(args.seed).sample(cases, args.sample)
        cases = sorted(chosen, key=lambda case: str(case.name))
    outcomes = run_all(cases, args.jobs, progress=len(cases) > 50)
    kinds = Counter(kind for kind, _ in outcomes.values())
    print(f"{len(cases)} cases in {time.monotonic() - started:.0f} s: {dict(kinds)}")

    if args.check:
        worse += check(outcomes)
        for line in worse:
            print(line)
        if worse:
            print(f"{RECORD.name} is not true: mend what fails, then write it (--update)")
        return 1 if worse else 0
    failing = failures(outcomes)
    print("\n".join(causes(failing)))
    if cases != every and not args.update:
        for name in sorted(failing):
            print(f"{name}: {failing[name]}")
        return 0
    kept = {name: why for name, why in recorded().items() if name not in outcomes}
    constant = {name for name in recorded_constant() if name not in outcomes}
    constant |= {name for name, (kind, _) in outcomes.items() if kind == PASS_CONSTANT}
    RECORD.write_text(write_record(every, kept | failing, constant))
    print(f"wrote {RECORD}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
