#!/usr/bin/env python3
"""How evenly the kernels of some models keep 4 to 64 cores busy, on paper.

    scripts/bench/thread_balance.py models/*.onnx --target "llvm -mcpu=znver5" --cores 4 16 64

Each model's kernels are scheduled for that many cores, not compiled. A parallel loop is cut as
TVM's threads cut it, into as many equal runs of iterations as there are cores, and lasts as long as
the longest; what is outside of such loops lasts as long as on one core. Operations and stores of
an element count alike. The share of the cores that is busy says nothing of caches and memory, which
cores share, nor of the microseconds in which they are woken.
"""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import tvm
import tvm_ffi
from tvm import tirx

import compiler
import compiler.target as targets
from compiler import relay
from compiler.cli.compile import BuildOptions, import_model
from compiler.cli.console import Steps, show, table
from compiler.lowering.bind import bind_params
from compiler.lowering.pipeline import scheduled

_OPERATIONS = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Max, tirx.Min, tvm.ir.Call)
CORES = (4, 8, 16, 32, 64)


class Nest(NamedTuple):
    """Some work, in operations, of which a parallel loop has `tasks` equal parts."""

    work: float
    tasks: int


def busy(nests: Iterable[Nest], cores: int) -> float:
    """Share of the cores' time that is work, 0 to 1."""
    nests = list(nests)
    spent = sum(nest.work * -(-nest.tasks // cores) / nest.tasks for nest in nests)
    return sum(nest.work for nest in nests) / (cores * spent) if spent else 1.0


def nests_of(func: tirx.PrimFunc) -> list[Nest]:
    """The outermost parallel loops of a scheduled kernel, and what is outside of them."""
    loops: list[tirx.For] = []

    def visit(loop: tirx.For) -> Any:
        if loop.kind != tirx.ForKind.PARALLEL:
            return None
        loops.append(loop)
        return tvm_ffi.WalkResult.SKIP

    tvm_ffi.structural_walk(func.body, (tirx.For, visit), order="pre")
    nests = [Nest(_work(loop), int(loop.extent)) for loop in loops]
    outside = _work(func.body) - sum(nest.work for nest in nests)
    return [*nests, Nest(outside, 1)] if outside > 0 else nests


def _work(stmt: Any) -> float:
    """Operations on floats and stores of elements; of two branches the longer one."""
    if isinstance(stmt, tirx.BufferStore):
        return 1.0 + _operations(stmt.value)
    if isinstance(stmt, tirx.For):
        return int(stmt.extent) * _work(stmt.body)
    if isinstance(stmt, tirx.SeqStmt):
        return sum(map(_work, stmt.seq))
    if isinstance(stmt, tirx.IfThenElse):
        return max(_work(stmt.then_case), _work(stmt.else_case) if stmt.else_case else 0.0)
    inner = getattr(stmt, "body", getattr(stmt, "block", None))
    return _work(inner) if inner is not None else 0.0


def _operations(value: Any) -> int:
    found = 0

    def count(node: Any) -> None:
        nonlocal found
        found += str(node.ty.dtype).startswith("float")

    tvm_ffi.structural_walk(value, (_OPERATIONS, count))
    return found


def shares(model: pathlib.Path, target: str, cores: int) -> tuple[float, list[tuple[str, float]]]:
    """Share of the cores that is busy in a whole model, and by kernel what is lost, most first."""
    options = BuildOptions(target=f"{target} -num-cores={cores}")
    mod, params = import_model(model, options, Steps())
    bound, _ = bind_params(mod, params)
    with compiler.PassContext(opt_level=3):
        state = scheduled(relay.to_relax(bound), targets.parse(options.target))
    kernels = {
        kernel.name: [
            Nest(kernel.calls * nest.work, nest.tasks) for nest in nests_of(state.mod[kernel.name])
        ]
        for kernel in state.report.kernels
    }
    whole = [nest for nests in kernels.values() for nest in nests]
    total = sum(nest.work for nest in whole)
    idle = {
        f"{kernel.name} {kernel.implementation}": sum(nest.work for nest in kernels[kernel.name])
        / total
        * (1 / busy(kernels[kernel.name], cores) - 1)
        for kernel in state.report.kernels
    }
    return busy(whole, cores), sorted(idle.items(), key=lambda each: -each[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("models", nargs="+", type=pathlib.Path, help="ONNX files")
    parser.add_argument("--target", default="llvm -mcpu=znver5", help="a CPU that LLVM names")
    parser.add_argument("--cores", nargs="+", type=int, default=CORES)
    parser.add_argument("--kernels", type=int, default=0, help="most that wait, named per model")
    args = parser.parse_args()
    rows, waiting = [], []
    for model in args.models:
        row = [model.stem]
        for cores in args.cores:
            share, idle = shares(model, args.target, cores)
            row.append(f"{share:.0%}")
            for name, lost in idle[: args.kernels]:
                waiting.append((model.stem, cores, name, f"{lost:.1%}"))
        rows.append(row)
    header = ("share of the cores that is busy", *map(str, args.cores))
    show(table(header, rows, title=args.target, numbers=len(args.cores)))
    if waiting:
        show(table(("model", "cores", "kernel", "adds to the time"), waiting, numbers=1))


if __name__ == "__main__":
    main()
