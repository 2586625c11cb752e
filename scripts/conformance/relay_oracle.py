#!/usr/bin/env python3
"""Run the programs that real Relay recorded through reader, build and executor; count by operator.

    python -m scripts.conformance.relay_oracle ORACLE [--group level1]
        [--ops nn.conv2d,add] [--ids a,b] [--round-trip] [--json report.json]

Where Relay's result is not the one wanted, `DOCUMENTED` says by which rule the result differs;
it must differ by that rule alone, and is counted apart, not as a pass.

ORACLE is a folder with `load.py`, `ops/` and `networks/`. Every program runs in a process of its
own pool worker, so that a crash is one failure and not the end.
"""

from __future__ import annotations

import argparse
import collections
import importlib.util
import json
import multiprocessing
import os
import pathlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

SECONDS = 120
PASS, DIFFERS = "pass", "differs as documented"


def _only_where_nan(want: Any, got: Any) -> bool:
    """A maximum or minimum is NaN where an operand is (IEEE 754); Relay's took the other one."""
    import numpy as np

    same = (want == got) | (np.isnan(want) & np.isnan(got))
    return bool(np.all(same | np.isnan(got)))


def _as_near_as_halves(want: Any, got: Any) -> bool:
    """Products of halves are summed in float32 and rounded once; Relay rounded each sum."""
    import numpy as np

    scale = max(1.0, float(np.abs(want).max()))
    return bool(np.all(np.abs(want - got) <= 5e-3 * scale + 1e-2 * np.abs(want)))


DOCUMENTED: dict[str, Callable[[Any, Any], bool] | str] = {
    "extra_elementwise_3dbde8c8ed": _only_where_nan,
    "extra_elementwise_bccfcc77b5": _only_where_nan,
    "extra_elementwise_cf7ee26fc0": _only_where_nan,
    "misc_f114156dac": _as_near_as_halves,
    "misc_fcdcadc3a9": _as_near_as_halves,
    # A scalar for a parameter of one axis is an error; Relay's interpreter did not look.
    "language_5457b5d04e": "InputError: parameter 'v1' has the shape (any), but the value has (): ",
}
"""Programs whose results are not Relay's, and how: of the arrays, or the error."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("oracle", type=pathlib.Path)
    parser.add_argument("--group", help="only this group of programs")
    parser.add_argument("--ops", help="only programs with one of these operators")
    parser.add_argument("--ids", help="only these programs")
    parser.add_argument("--every", type=int, default=1, help="only every n-th program")
    parser.add_argument("--round-trip", action="store_true", help="write as text, read, run that")
    parser.add_argument("--json-modules", action="store_true", help="read the saved JSON modules")
    parser.add_argument("--json", type=pathlib.Path, help="write the results to this file")
    options = parser.parse_args()

    chosen = [case for case in _cases(options)][:: options.every]
    results = []
    for case, (outcome, why) in zip(chosen, _run_all(options, [case.id for case in chosen])):
        results.append({"id": case.id, "ops": case.ops, "outcome": outcome, "why": why})
        if outcome != PASS:
            print(f"{case.id:28} {outcome:10} {why[:300]}", flush=True)
    _report(results)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    return 0 if all(result["outcome"] in (PASS, DIFFERS) for result in results) else 1


def _cases(options: argparse.Namespace) -> Iterator[Any]:
    load = _loader(options.oracle)
    ops = set(options.ops.split(",")) if options.ops else None
    ids = set(options.ids.split(",")) if options.ids else None
    saved = {name for name, _ in load.json_modules()} if options.json_modules else None
    for case in load.cases(options.group, ops=ops):
        if (ids is None or case.id in ids) and (saved is None or case.id in saved):
            yield case


def _loader(oracle: pathlib.Path) -> Any:
    spec = importlib.util.spec_from_file_location("relay_oracle_load", oracle / "load.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _run_all(options: argparse.Namespace, ids: list[str]) -> Iterator[tuple[str, str]]:
    """Outcome and reason of each program, in order; a dead worker is replaced."""
    context = multiprocessing.get_context("spawn")
    worker: Any = None
    link: Any = None
    for name in ids:
        if worker is None:
            link, far = context.Pipe()
            worker = context.Process(target=_serve, args=(far, options), daemon=True)
            worker.start()
            far.close()
        assert link is not None
        link.send(name)
        try:
            if not link.poll(SECONDS):
                worker.kill()
                worker = None
                yield "timeout", f"more than {SECONDS} s"
                continue
            yield link.recv()
        except (EOFError, ConnectionResetError):
            worker.join()
            yield "crash", f"the process died with {worker.exitcode}"
            worker = None
    if worker is not None:
        worker.kill()


def _serve(link: Any, options: argparse.Namespace) -> None:
    load = _loader(options.oracle)
    cases = {case.id: case for case in load.cases(options.group)}
    saved = dict(load.json_modules()) if options.json_modules else {}
    while True:
        try:
            case = cases[link.recv()]
        except EOFError:
            return
        try:
            link.send(_run(load, case, options, saved.get(case.id)))
        except Exception as error:
            text = " ".join(str(error).split())
            why = f"{type(error).__name__}: {text}"[:2000]
            rule = DOCUMENTED.get(case.id)
            is_documented = isinstance(rule, str) and why.startswith(rule)
            link.send((DIFFERS if is_documented else "error", why))


def _run(load: Any, case: Any, options: argparse.Namespace, saved: str | None) -> tuple[str, str]:
    from compiler import relay

    mod = relay.load_json(saved) if saved is not None else relay.fromtext(case.text, case.id)
    if options.round_trip:
        mod = relay.fromtext(relay.astext(mod), case.id)
    got = execute(mod, case.params, case.meta["opt_level"])
    right, why = load.compare(case, got)
    if right:
        return PASS, ""
    rule = DOCUMENTED.get(case.id)
    is_documented = callable(rule) and all(map(rule, case.outputs, got))
    return DIFFERS if is_documented else "wrong", why


def execute(mod: Any, params: Any, opt_level: int) -> list[Any]:
    """Outputs of `main`, flattened: by the graph executor, or by the VM where it can't."""
    import tvm

    from compiler import relay
    from compiler.errors import BuildError
    from compiler.runtime import graph_executor

    del opt_level  # the programs are built at level 3, whatever they were recorded with
    values = [_as_stored(param) for param in params]
    names = [str(var.name) for var in mod["main"].params]
    plain = all(not isinstance(value, tuple) for value in values)
    if plain and _is_static(mod):
        try:
            with tvm.transform.PassContext(opt_level=3):
                lib = relay.build(mod, "llvm")
            module = graph_executor.GraphModule(lib["default"](tvm.cpu()))
            for name, value in zip(names, values):
                module.set_input(name, value)
            module.run()
            return _flattened([module.get_output(i) for i in range(module.get_num_outputs())])
        except BuildError:
            pass
    with tvm.transform.PassContext(opt_level=3):
        function = relay.create_executor("vm", mod, tvm.cpu(), "llvm").evaluate()
    return _flattened(function(*values))


def _is_static(mod: Any) -> bool:
    from tvm import relax, tirx

    def static(ty: Any) -> bool:
        if isinstance(ty, relax.TupleType):
            return all(map(static, ty.fields))
        shape = getattr(ty, "shape", None)  # data that only running tells has none
        return shape is not None and all(isinstance(v, tirx.IntImm) for v in shape.values)

    main = mod["main"]
    return all(static(var.ty) for var in main.params) and static(main.ret_ty)


def _as_stored(param: Any) -> Any:
    def convert(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(convert, value))
        if "bfloat16" in param.type and value.dtype == "uint16":
            import ml_dtypes

            return value.view(ml_dtypes.bfloat16)
        return value

    return convert(param.value)


def _flattened(value: Any) -> list[Any]:
    import numpy as np

    if isinstance(value, (tuple, list)) or type(value).__name__ == "Array":
        return [leaf for item in value for leaf in _flattened(item)]
    array = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
    return [array.view("uint16") if str(array.dtype) == "bfloat16" else array]


def _report(results: list[dict[str, Any]]) -> None:
    outcomes = collections.Counter(result["outcome"] for result in results)
    total = sum(outcomes.values())
    share = 100 * outcomes[PASS] / max(total, 1)
    print(f"\n{outcomes[PASS]} of {total} pass ({share:.1f} %), {outcomes[DIFFERS]} {DIFFERS}")
    failed: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    used: collections.Counter[str] = collections.Counter()
    for result in results:
        for op in result["ops"]:
            used[op] += 1
            if result["outcome"] not in (PASS, DIFFERS):
                failed[op][result["outcome"]] += 1
    print("operators in programs that fail (failed of all):")
    for op, counts in sorted(failed.items(), key=lambda item: -sum(item[1].values())):
        how = ", ".join(f"{n} {what}" for what, n in counts.items())
        print(f"  {op:40} {sum(counts.values()):4} of {used[op]:4}  {how}")
    causes = collections.Counter(
        result["why"].split(":")[0][:60]
        for result in results
        if result["outcome"] not in (PASS, DIFFERS)
    )
    print("causes:")
    for cause, count in causes.most_common(30):
        print(f"  {count:4} {cause}")


if __name__ == "__main__":
    os.environ.setdefault("TVM_NUM_THREADS", "1")
    started = time.time()
    code = main()
    print(f"{time.time() - started:.0f} s")
    sys.exit(code)
