#!/usr/bin/env python3
"""Models of torchvision, timm and transformers under torch.compile: Baton, inductor and eager.

    python -m scripts.bench.torch_compile rows.json --check
    python -m scripts.bench.torch_compile rows.json --check --export --models resnet18,Bert
    python -m scripts.bench.torch_compile rows.json --warm --family timm
    python -m scripts.bench.torch_compile rows.json --time
    python -m scripts.bench.torch_compile rows.json --table docs/pytorch_measured.md

Models have random weights (`torch_models.py`) and one sample; all run in float32 on one thread of
the CPU. Each is a process of its own with a limit of time, and adds a row to the file, so that a
run goes on where the last one stopped: what has a row is left out, and with `--again` what is
right. `--check` compares Baton's results with eager PyTorch's: the largest difference of a result,
relative to that result's largest element. `--export` does so for `torch.export` with a dynamic
batch and `from_pytorch`, for two batches. `--time` measures after the check in rounds in turn and
keeps medians, and `--warm` only builds, so that a later `--time` finds all caches filled; set
XDG_CACHE_HOME, TORCHINDUCTOR_CACHE_DIR and BATON_KERNEL_CACHE_BYTES (30 GB for all models).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import pathlib
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

from scripts.bench.turns import time_in_turn

TOLERANCE = 1e-4
ENGINES = ("eager", "inductor", "baton")
MARKS = "<!-- table of scripts/bench/torch_compile.py -->", "<!-- end of the table -->"
Row = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", type=pathlib.Path, help="JSON file that rows are added to")
    parser.add_argument("--check", action="store_true", help="Baton's results alone")
    parser.add_argument("--export", action="store_true", help="by torch.export, a dynamic batch")
    parser.add_argument("--warm", action="store_true", help="build with each, measure nothing")
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--table", type=pathlib.Path, help="file to write the rows' table into")
    parser.add_argument("--models", default="", help="names, by default all")
    parser.add_argument("--family", default="", help="torchvision, timm, transformers")
    parser.add_argument(
        "--again", action="store_true", help="also what has a row, unless it is right"
    )
    parser.add_argument("--engines", default=",".join(ENGINES), help="that --warm builds with")
    parser.add_argument("--rounds", type=int, default=9, help="at most")
    parser.add_argument("--seconds", type=float, default=2.0, help="of measuring a model, at most")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for one model")
    args = parser.parse_args()

    if args.table:
        write_table(args.table, read(args.rows))
        return 0
    os.environ.update(TVM_NUM_THREADS="1", OMP_NUM_THREADS="1", TORCHINDUCTOR_COMPILE_THREADS="1")
    task = "export" if args.export else "check" if args.check else "warm" if args.warm else "time"
    processes = multiprocessing.get_context("forkserver")
    preloaded = ["timm", "torch._inductor.compile_fx", "torchvision", "transformers"]
    processes.set_forkserver_preload([*preloaded, "compiler.lowering.build", "compiler.relay"])
    failed = []
    for name in chosen(args.models, args.family):
        row = read(args.rows).get(name, {}).get(task)
        if row is None or (args.again and "failed" in row):
            row = in_process(processes, task, name, args)
            rows = read(args.rows)  # another run may have added to it
            rows.setdefault(name, {})[task] = row
            args.rows.write_text(json.dumps(rows, indent=1))
            print(f"{name:36} {shown(row)}", flush=True)
        failed += [name] if "failed" in row else []
    print(f"{len(failed)} failed: {', '.join(failed)}" if failed else "none failed")
    return 1 if failed else 0


def read(path: pathlib.Path) -> dict[str, Row]:
    """The rows of a file, which need not be there: by model and task."""
    found: dict[str, Row] = json.loads(path.read_text()) if path.exists() else {}
    return found


def chosen(names: str, family: str) -> list[str]:
    """Names of the models that are asked for."""
    from scripts.models.torch_models import MODELS

    by_name = {model.name: model for model in MODELS}
    wanted = names.split(",") if names else list(by_name)
    for name in wanted:
        if name not in by_name:
            raise SystemExit(f"there is no model {name!r}; see scripts/models/torch_models.py")
    return [name for name in wanted if family in ("", by_name[name].family)]


def in_process(processes: Any, task: str, name: str, args: argparse.Namespace) -> Row:
    """What a task returns, or why it failed, run in a process of its own."""
    receiver, sender = processes.Pipe(duplex=False)
    engines = ("baton",) if task == "check" else tuple(args.engines.split(","))
    process = processes.Process(
        target=work, args=(sender, task, name, engines, args.rounds, args.seconds)
    )
    started = time.perf_counter()
    process.start()
    sender.close()
    try:
        row = receiver.recv() if receiver.poll(args.limit) else {"failed": f"{args.limit:.0f} s"}
    except EOFError:
        process.join()
        row = {"failed": f"the process ended with {process.exitcode}"}
    process.kill()
    process.join()
    return {**row, "seconds": round(time.perf_counter() - started, 1)}


def work(
    sender: Any, task: str, name: str, engines: Sequence[str], rounds: int, seconds: float
) -> None:
    """Run one task for one model and send its row."""
    import torch

    from scripts.models.torch_models import MODELS

    torch.set_num_threads(1)
    model = next(each for each in MODELS if each.name == name)
    try:
        with torch.no_grad():
            if task == "export":
                row = exported(model)
            else:
                row = compiled(model, engines, rounds if task == "time" else 0, seconds)
        if not row.get("error", 0) < TOLERANCE:
            row["failed"] = f"differs by {row['error']:.1e}"
    except Exception as error:
        reason = (str(error).strip().splitlines() or [""])[0]
        row = {"failed": f"{type(error).__name__}: {reason}"[:400]}
        if os.environ.get("BENCHMARK_TRACEBACK"):
            import traceback

            traceback.print_exc()
    sender.send(row)


def compiled(model: Any, engines: Sequence[str], rounds: int, seconds: float) -> Row:
    """Error and graphs of a model under torch.compile, and its times where there are rounds."""
    import torch

    from compiler.torch import baton

    graphs = []

    def counted(graph: Any, examples: Any, **options: Any) -> Any:
        graphs.append(graph)
        return baton(graph, examples, **options)

    args, kwargs = model.arguments()
    module = model.build()
    calls = {"eager": module}
    row: Row = {"torch": torch.__version__}
    if "baton" in engines:
        wanted = leaves(module(*args, **kwargs))
        calls["baton"] = torch.compile(module, backend=counted)
        started = time.perf_counter()
        row["error"] = difference(leaves(calls["baton"](*args, **kwargs)), wanted)
        row["build"] = round(time.perf_counter() - started, 1)
        row["graphs"] = len(graphs)
    if "inductor" in engines:
        calls["inductor"] = torch.compile(module)
        started = time.perf_counter()
        calls["inductor"](*args, **kwargs)
        row["inductor_build"] = round(time.perf_counter() - started, 1)
    if rounds:
        functions = {name: lambda call=call: call(*args, **kwargs) for name, call in calls.items()}
        times = time_in_turn(functions, rounds, seconds)
        row["ms"] = {name: statistics.median(each) for name, each in times.items()}
    return row


def exported(model: Any) -> Row:
    """Error of a model that was exported with a symbolic batch, at batches 2 and 3."""
    import torch
    from torch.utils import _pytree

    from compiler import PassContext, relay

    module = model.build()
    args, kwargs = model.arguments(2)
    batch = torch.export.Dim("batch", max=16)
    shapes = _pytree.tree_map(lambda _: {0: batch}, kwargs or args)
    program = torch.export.export(module, args, kwargs, dynamic_shapes=shapes, strict=False)
    mod, params = relay.frontend.from_pytorch(program)
    with PassContext(3):
        library = relay.build(mod, target="llvm", params=params)
    session = library.session(num_threads=1)
    worst = 0.0
    for size in (2, 3):
        args, kwargs = model.arguments(size)
        wanted = leaves(module(*args, **kwargs))
        given = [*args, *kwargs.values()]
        infos = session.inputs
        results = session.run(
            {info.name: value.numpy() for info, value in zip(infos, given, strict=True)}
        )
        found = [torch.from_numpy(results[info.name]) for info in session.outputs]
        worst = max(worst, difference(found, wanted))
    return {"error": worst, "torch": torch.__version__}


def leaves(results: Any) -> list[Any]:
    """The tensors of nested results, in order."""
    import torch
    from torch.utils import _pytree

    return [leaf for leaf in _pytree.tree_leaves(results) if isinstance(leaf, torch.Tensor)]


def difference(found: list[Any], wanted: list[Any]) -> float:
    """The largest difference of two lists of tensors, each relative to its largest element."""
    worst = 0.0
    for ours, theirs in zip(found, wanted, strict=True):
        if ours.shape != theirs.shape or not ours.isfinite().all():
            return float("inf")
        if theirs.numel():
            scale = max(float(theirs.abs().max()), 1e-30)
            worst = max(worst, float((ours - theirs).abs().max()) / scale)
    return worst


def shown(row: Row) -> str:
    if "failed" in row:
        return f"{row['seconds']:6.1f} s  {row['failed']}"
    error = f"  {row['error']:.1e}" if "error" in row else ""
    times = "".join(f"  {name} {took:.2f}" for name, took in row.get("ms", {}).items())
    return f"{row['seconds']:6.1f} s{error}{times}"


def write_table(path: pathlib.Path, rows: dict[str, Row]) -> None:
    """Put what the rows say between the marks of a Markdown file."""
    from scripts.models.torch_models import FAMILIES, MODELS

    known = [(model, summary(rows[model.name])) for model in MODELS if model.name in rows]
    right = [row for _, row in known if "failed" not in row]
    exports = [row["export"] for row in rows.values() if "export" in row]
    lines = [f"{len(right)} of {len(known)} models are right to {TOLERANCE:.0e}."]
    if exports:
        good = sum("failed" not in row for row in exports)
        lines.append(f"Exported with an open batch, {good} of {len(exports)} are.")
    for family in FAMILIES:
        lines += ["", f"| {family} | input | error | eager | inductor | Baton | inductor / Baton |"]
        lines.append("|---|---|---|---|---|---|---|")
        lines += [table_row(model, row) for model, row in known if model.family == family]
    for other in ("eager", "inductor"):
        ratios = [row["ms"][other] / row["ms"]["baton"] for row in right if "ms" in row]
        if ratios:
            mean, faster = statistics.geometric_mean(ratios), sum(each > 1 for each in ratios)
            lines += ["", f"Baton against {other}: {mean:.2f} times as fast (geometric mean of "]
            lines[-1] += f"{len(ratios)} models), faster on {faster}."
    before, _, rest = path.read_text().partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    path.write_text(f"{before}{MARKS[0]}\n" + "\n".join(lines) + f"\n{MARKS[1]}{after}")


def summary(tasks: Row) -> Row:
    """What the tasks of a model say of torch.compile: the last one that compared results."""
    done = [tasks[task] for task in ("time", "warm", "check") if task in tasks]
    compared = [row for row in done if "error" in row]
    return (compared or done or [{"failed": "not tried"}])[0]


def table_row(model: Any, row: Row) -> str:
    name = f"{model.name} ({model.note})" if model.note else model.name
    shape = "x".join(map(str, model.shape))
    if "error" not in row:
        return f"| {name} | {shape} | {row['failed'].partition(';')[0].replace('|', '')} | | | | |"
    ms = row.get("ms")
    times = [f"{ms[engine]:.2f}" for engine in ENGINES] if ms else ["", "", ""]
    ratio = f"{ms['inductor'] / ms['baton']:.2f}" if ms else ""
    return f"| {name} | {shape} | {row['error']:.1e} | {' | '.join(times)} | {ratio} |"


if __name__ == "__main__":
    sys.exit(main())
