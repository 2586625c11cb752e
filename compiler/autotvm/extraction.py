"""The AutoTVM tasks of a program: what a build of it would look for in a log."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from schedules.config import InstantiationError
from schedules.space import has_space
from schedules.strategy import registered

from ..errors import RecordError
from ..records.autotvm.workload import normalize, to_tuple
from .task import TEMPLATES, Task

if TYPE_CHECKING:
    from tvm.target import Target

logger = logging.getLogger("baton.autotvm")


def extract_from_program(
    mod: Any,
    params: Mapping[str, Any] | None = None,
    target: Any = "llvm",
    target_host: Any | None = None,
    ops: Sequence[Any] | None = None,
) -> list[Task]:
    """The tasks of a program: for every operator, all implementations that can be tuned.

    `ops` restricts the tasks to operators, given as operators, their functions
    (`relay.op.nn.conv2d`) or their names ("nn.conv2d", "nn.dense", "nn.batch_matmul", "nn.conv3d").
    The default is all, except for matmuls of a fused attention, whose records would replace it.
    Tasks are in the order of first appearance; `weight` is the number of appearances.
    Raises RecordError: an entry of `ops` is not an operator.
    """
    return extract_from_multiple_program([mod], [params], target, target_host, ops)


def extract_from_multiple_program(
    mods: Sequence[Any],
    params: Sequence[Mapping[str, Any] | None],
    target: Any = "llvm",
    target_host: Any | None = None,
    ops: Sequence[Any] | None = None,
) -> list[Task]:
    """The tasks of several programs, each once; see `extract_from_program`."""
    from .. import target as targets
    from . import operators

    parsed = targets.parse(target, target_host)
    found: Counter[tuple] = Counter()
    wanted = None if ops is None else _known_operators(ops)
    for mod, values in zip(mods, params, strict=True):
        found.update(_queried(mod, values, parsed, wanted))
    tasks = []
    for (name, *args), weight in found.items():
        if not has_space(name) and name not in TEMPLATES:
            continue
        task = Task(name, args, parsed, weight)
        try:
            if wanted is not None and task.tunable.operator.name not in wanted:
                continue
            task.config_space  # noqa: B018 (collects the knobs)
        except (InstantiationError, IndexError) as error:
            logger.warning("%s is not a task: %s", task, error)
            continue
        tasks.append(task)
    if not tasks and not any(registered(name, parsed) for name in operators.OPERATORS):
        logger.warning(
            "there are no tasks for %s: its kernels have no template; targets with templates are "
            "llvm and cuda", parsed.kind.name,
        )  # fmt: skip
    return tasks


def _known_operators(ops: Sequence[Any]) -> set[str]:
    from ..relay.op import registry
    from .operators import OPERATORS

    builders = {_builder(name): name for name in OPERATORS}
    wanted = {_operator_name(builders.get(op, op)) for op in ops}
    advice = f"tasks exist for {', '.join(OPERATORS)}"
    if unknown := wanted - {*OPERATORS, *registry.names()}:
        raise RecordError(f"ops: there is no operator {', '.join(sorted(unknown))}; {advice}")
    for name in sorted(wanted - {*OPERATORS}):
        logger.warning("ops: there are no tasks for %s; %s", name, advice)
    return wanted


def _builder(name: str) -> Any:
    """The function of `relay.op` that builds calls of an operator; in TVM 0.6 its name."""
    from ..relay import op

    for part in name.split("."):
        op = getattr(op, part)
    return op


def _operator_name(op: Any) -> str:
    name = str(getattr(op, "name", op)).removeprefix("relax.").removeprefix("relay.")
    return "nn.dense" if name == "matmul" else name


def _queried(
    mod: Any, params: Mapping[str, Any] | None, target: Target, wanted: set[str] | None
) -> Counter[tuple]:
    """Workloads that a build of the module asks records for, with the number of times."""
    import tvm

    from ..ir.convert_layout import convert_layout
    from ..lowering.bind import bind_params
    from ..lowering.graph_passes.fp32_accumulation import widen_halves
    from ..lowering.graph_passes.shape_multiversioning import specialize
    from ..lowering.offloaded_functions import function_targets
    from ..lowering.pass_flags import FUSE_ATTENTION
    from ..lowering.selection.ops.attention import find_attention
    from ..lowering.selection.select_implementations import select_implementations
    from ..lowering.simplify import simplify
    from ..relay.build_module import as_module

    asked: Counter[tuple] = Counter()
    inside_attention: set[tuple[int, ...]] = set()

    def query(_: Target, workload: tuple) -> None:
        asked[to_tuple(normalize(workload))] += 1

    bound, _ = bind_params(as_module(mod), params or {})
    # Layouts as they come: tasks are those of plain operators, as TVM 0.18 extracted them.
    with tvm.transform.PassContext(opt_level=3):
        simplified = specialize(simplify(bound))
        fuse_attention = FUSE_ATTENTION.enabled and "nn.batch_matmul" not in (wanted or ())
        for name, own_target in function_targets(simplified, target).items():
            if str(own_target) != str(target):
                continue
            widened = widen_halves(simplified, name) if target.kind.name == "llvm" else simplified
            converted = convert_layout(widened, name)
            select_implementations(converted, name, target, query, fuse_attention=fuse_attention)
            if fuse_attention:
                for attention in find_attention(simplified[name]).values():
                    inside_attention |= _products(attention.workload)
    return Counter(
        {
            workload: count
            for workload, count in asked.items()
            if not inside_attention or _extents(workload) not in inside_attention
        }
    )


def _products(attention: Any) -> set[tuple[int, ...]]:
    """(batch, m, n, k) of the two products of an attention."""
    batch = math.prod(attention.batch)
    s, t, d, c = attention.s, attention.t, attention.d, attention.c
    return {(batch, s, t, d), (batch, s, c, t)}


def _extents(workload: tuple) -> tuple[int, ...]:
    """(batch, m, n, k) of a product of stacks of matrices; () for other workloads."""
    from .operators import OPERATORS

    name, *args = workload
    if not name.startswith("batch_matmul"):
        return ()
    w = OPERATORS["nn.batch_matmul"].workload(name, tuple(args))
    return (math.prod(w.batch), w.m, w.n, w.k)
