"""The build driver: from a Relax module to a library, step by step.

    bind -> in the cache? -> simplify -> set aside recorded kernels
         -> split the batch -> select implementations and layouts -> legalise and fuse -> schedule
         -> lift weights -> place on devices -> link

Whether kernels come from TOPI schedules or from auto_scheduler records is read from the dispatch
contexts that are active in the calling thread (`schedule_source`), never from an argument.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import tvm
from tvm import relax
from tvm.target import Target

from schedules.cuda import winograd_template
from schedules.x86 import strassen, winograd, winograd_parts

from .. import graph, precision
from .. import target as targets
from ..errors import BuildError
from ..graph.convert_layout import NAME as CONVERT_LAYOUT_PASS
from ..graph.convert_layout import convert_layout
from ..graph.unroll_recurrent import unroll_recurrent
from ..runtime.factory import FactoryModule
from ..runtime.metadata import OUTPUT_NAMES, UNKNOWN, Metadata, ParamInfo, TensorInfo
from .bind import bind_params, without_aliases
from .cache import library_cache, library_key
from .compile_errors import build_or_retreat
from .foreign import Lower, attach, compile_foreign
from .linking import devices
from .linking.concat_in_place import NAME as CONCAT_PASS
from .linking.lift_constants import lift_constants
from .linking.link import Linked, link
from .relax_passes.check_divisors import check_divisors
from .relax_passes.check_indices import check_indices
from .relax_passes.combine_matmul import combine_matmul
from .relax_passes.fold_gate import fold_gates
from .relax_passes.fuse import fuse
from .relax_passes.samples import provenance
from .relax_passes.split_batch import split_batch
from .relax_passes.widen_half import widen_halves
from .report import Kernel, Report
from .selection import recorded
from .selection.schedule import schedule_kernels
from .selection.schedule_source import ScheduleSource
from .selection.select import select_implementations
from .subgraphs import (
    bind_constant_arguments,
    function_targets,
    inline_subgraphs,
    partition_info,
    subgraph_flops,
)

if TYPE_CHECKING:
    from ..auto_scheduler.ansor.check import Checker

LAYOUT_PASS = "AlterOpLayout"
FAST_MATH_PASS = "FastMath"
WINOGRAD_PASS, STRASSEN_PASS = precision.FEWER_MULTIPLICATIONS
FEWER_MULTIPLICATIONS = {
    WINOGRAD_PASS: (winograd.NAME, winograd_parts.NAME, winograd_template.NAME),
    STRASSEN_PASS: (strassen.DENSE, strassen.CONV2D),
}
"""Implementations that round differently, by the name that `disabled_pass` knows."""
ATTENTION_PASS = "FuseAttention"
COMBINE_PASS = "CombineParallelMatmul"
SPLIT_BATCH_PASS = "SplitBatch"
GATE_PASS = "FoldGate"


def build(
    mod: tvm.IRModule,
    target: Target,
    params: Mapping[str, Any] | None = None,
    mod_name: str = "default",
    lower: Lower = lambda mod: mod,
) -> FactoryModule:
    """Compile a module to a library.

    Parameters
    ----------
    mod : tvm.IRModule
        A module at operator level with static shapes; accepted subgraphs are functions of their
        own. It is not changed.
    target : Target
        Target of `main` and of every subgraph that names none.
    params : dict of str to array, optional
        Values of parameters of `main`, by name; unknown names are ignored.
    mod_name : str
        Name of the function in the library that makes an executor.
    lower : callable, optional
        Makes the module's operators Relax's. A library that is in the cache does without.

    Raises
    ------
    BuildError
        A parameter does not fit, or a kernel does not compile.
    UnavailableTargetError
        A target can't be compiled for on this machine.
    """

    def attempt(mod: tvm.IRModule, target: Target, params: Any, notes: list[str]) -> FactoryModule:
        request = _Request(target, mod_name, tuple(notes), ScheduleSource.from_contexts())
        return _build(mod, params or {}, request, lower)

    return build_or_retreat(mod, target, params or {}, attempt)


@dataclass(frozen=True)
class _Request:
    """What a build is asked for beside the module.

    Attributes
    ----------
    target : Target
        Of `main`.
    mod_name : str
    notes : tuple of str
        Come first in the report.
    source : ScheduleSource
    """

    target: Target
    mod_name: str
    notes: tuple[str, ...]
    source: ScheduleSource


def _build(
    mod: tvm.IRModule,
    params: Mapping[str, Any],
    request: _Request,
    lower: Lower,
) -> FactoryModule:
    """One attempt at a build: put together again from the cache, or made and kept there."""
    watch = _Stopwatch()
    target, source = request.target, request.source
    obstacle = library_key.obstacle(mod, target, source)
    compiled, foreign_modules = compile_foreign(mod, target, params, lower)
    bound, bound_names = bind_params(compiled, params)
    watch.lap("bind")
    slot = None
    if not obstacle:
        others = (request.mod_name, bound_names, request.notes)
        slot = library_cache.Slot.of(bound, target, source, others)
        restored = slot.restore(mod, watch.laps) if slot else None
        watch.lap("restore")
        if restored is not None:
            return restored
    bound = lower(bound)
    watch.lap("lower")
    with library_cache.recorded_warnings() as messages:
        linked, metadata, weights, report = _compile(bound, foreign_modules, request, watch)
    report.cache = f"{linked.kernels.found} of {len(linked.kernels.code)} kernels"
    if obstacle:
        report.cache += f"; not the library, because {obstacle}"
    if linked.kernels.problem:
        report.cache += _nothing_kept(linked.kernels.problem)
    metadata = replace(metadata, bound_params=tuple(bound_names), report=report.to_json())
    own_weights = without_aliases(weights, params)
    library = FactoryModule(linked.executable, metadata, own_weights, report, mod, target)
    if slot is not None:
        slot.keep(library, linked, messages)
        if slot.cache.problem and not linked.kernels.problem:
            report.cache += _nothing_kept(slot.cache.problem)
        watch.lap("keep")
    return library


def _nothing_kept(reason: str) -> str:
    return f"; nothing is kept: {reason}"


def _compile(
    bound: tvm.IRModule, foreign_modules: list[Any], request: _Request, watch: _Stopwatch
) -> tuple[Linked, Metadata, list[tuple[str, Any]], Report]:
    """The steps after parameters are bound; once more for each time that records were wrong."""
    from ..auto_scheduler.ansor.check import Checker

    with Checker() as checker:
        while True:
            made = _compile_once(bound, foreign_modules, request, checker, watch)
            if made is not None:
                return made


def _compile_once(
    bound: tvm.IRModule,
    foreign_modules: list[Any],
    request: _Request,
    checker: Checker,
    watch: _Stopwatch,
) -> tuple[Linked, Metadata, list[tuple[str, Any]], Report] | None:
    """The library, or None where a record made a kernel that is wrong."""
    target, source = request.target, request.source
    report = Report(
        targets.to_cli(target),
        source.use_topi_schedule,
        int(tvm.transform.PassContext.current().opt_level),
        notes=list(request.notes),
        seconds=watch.laps,
        precision=precision.of_disabled(tvm.transform.PassContext.current().disabled_pass),
    )
    simplified = simplify(bind_constant_arguments(bound))
    watch.lap("simplify")

    chosen_targets = function_targets(simplified, target)
    for each in {str(t): t for t in chosen_targets.values()}.values():
        targets.check_buildable(each)
    found = recorded.Recorded(simplified)
    if not source.use_topi_schedule:
        found = recorded.set_aside(
            *(simplified, chosen_targets, source, checker), disabled_implementations()
        )
        report.notes += found.notes
        simplified = found.mod
        chosen_targets = function_targets(simplified, target)
    watch.lap("records")
    if enabled(SPLIT_BATCH_PASS, 3):
        found, note = _split_batch(found, chosen_targets, source)
        report.notes += [note] if note else []
        chosen_targets = function_targets(found.mod, target)
    checked = check_divisors(found.mod, chosen_targets, found.records)
    found = replace(found, mod=check_indices(checked, chosen_targets, found.records))
    scheduled, report.kernels = scheduled_kernels(found, chosen_targets, target, source, watch.lap)
    for kernel in report.kernels:
        kernel.remark = source.slower.get(kernel.source, "")
    if not source.use_topi_schedule:
        report.notes += recorded.warn_missing(report.kernels)
    report.notes += source.passed_over(chosen_targets.values(), disabled_implementations())

    lifted, weights = lift_constants(inline_subgraphs(scheduled))
    placed = devices.place(lifted, target, chosen_targets)
    linked = link(attach(placed, foreign_modules), target)
    report.drop(linked.dropped)
    watch.lap("link")
    if not recorded.all_right(found, linked.kernels.code, checker):
        return None
    watch.lap("check")
    metadata = Metadata(
        mod_name=request.mod_name,
        inputs=tuple(_inputs(simplified)),
        outputs=tuple(_outputs(simplified)),
        params=tuple(_weights(weights, placed, chosen_targets)),
        devices=devices.kinds(chosen_targets),
        target=targets.to_cli(target),
        cpu_features=_cpu_features(chosen_targets),
        partition=partition_info(
            simplified, chosen_targets, subgraph_flops(scheduled, report.kernels)
        ),
        tvm_version=tvm.__version__,
    )
    report.weights_bytes = sum(param.nbytes for param in metadata.params)
    report.activations_bytes, report.unknown_activations = linked.activations_bytes
    return linked, metadata, weights, report


def _split_batch(
    found: recorded.Recorded, chosen_targets: Mapping[str, Target], source: ScheduleSource
) -> tuple[recorded.Recorded, str]:
    """Have `main` work image by image where that pays; what has records stays as it is."""
    own = found.templates.get("main", {})
    mod, note = split_batch(found.mod, chosen_targets["main"], source.autotvm_known, own)
    return replace(found, mod=mod), note


def scheduled_kernels(
    found: recorded.Recorded,
    chosen_targets: Mapping[str, Target],
    target: Target,
    source: ScheduleSource,
    lap: Callable[[str], None] = lambda _: None,
) -> tuple[tvm.IRModule, list[Kernel]]:
    """Choose implementations and layouts, fuse, and schedule every kernel.

    Parameters
    ----------
    found : Recorded
        The module after `simplify`, and the auto_scheduler records of its kernels.
    chosen_targets
        Target of each Relax function.
    target : Target
        Of `main`.
    lap
        Told the name of each step when it is over.

    Returns
    -------
    The module with scheduled TIR functions, and one report entry for each.
    """
    lowered, known = found.mod, provenance(found.mod)
    fuse_attention = enabled(ATTENTION_PASS, 3)
    for name, own_target in chosen_targets.items():
        if name in found.records:
            continue
        own_queries = found.templates.get(name)
        if own_target.kind.name == "llvm":
            lowered = widen_halves(lowered, name)
        if own_target.kind.name != "llvm":
            lowered = unroll_recurrent(lowered, name)
        if own_target.kind.name == "llvm" and enabled(CONVERT_LAYOUT_PASS, 0):
            lowered = convert_layout(lowered, name)
        if enabled(GATE_PASS, 3) and own_target.kind.name == "llvm":
            lowered = fold_gates(lowered, name)
        if fuse_attention and enabled(COMBINE_PASS, 3):
            lowered = combine_matmul(lowered, name, own_target, source.autotvm_known, own_queries)
        lowered = select_implementations(
            lowered,
            name,
            own_target,
            source.autotvm_query,
            keep_layouts=not enabled(LAYOUT_PASS, 3),
            fuse_attention=fuse_attention,
            disabled=disabled_implementations(),
            own_queries=own_queries,
            known=known,
        )
    lap("select")
    in_place = target.kind.name == "llvm" and enabled(CONCAT_PASS, 3)
    fused, operators = fuse(devices.dispatch_sorts(lowered, chosen_targets), target, in_place)
    lap("fuse")
    scheduled = schedule_kernels(
        fused, chosen_targets, operators, found.records, fast_math=enabled(FAST_MATH_PASS, 3)
    )
    lap("schedule")
    return scheduled


def simplify(mod: tvm.IRModule) -> tvm.IRModule:
    """Run the target-independent passes that the current PassContext allows."""
    return tvm.transform.Sequential(graph.simplify_passes())(mod)


def enabled(pass_name: str, opt_level: int) -> bool:
    """Whether the current PassContext lets a pass of that level run."""
    context = tvm.transform.PassContext.current()
    if pass_name in context.disabled_pass:
        return False
    return pass_name in context.required_pass or context.opt_level >= opt_level


def disabled_implementations() -> list[str]:
    """Names of the implementations that the current PassContext does not let be chosen."""
    passes = FEWER_MULTIPLICATIONS.items()
    return [name for switch, names in passes if not enabled(switch, 3) for name in names]


class _Stopwatch:
    """Seconds that each step of the build took."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = now - self._last
        self._last = now


def _inputs(mod: tvm.IRModule) -> list[TensorInfo]:
    return [_describe(var.name, var.ty, _require_number) for var in mod["main"].params]


def _outputs(mod: tvm.IRModule) -> list[TensorInfo]:
    ty = mod["main"].ret_ty
    fields = ty.fields if isinstance(ty, relax.TupleType) else [ty]
    names = list(map(str, (mod["main"].attrs or {}).get(OUTPUT_NAMES, ())))
    if len(names) != len(fields) or len(set(names)) != len(names):
        names = [f"output{index}" for index in range(len(fields))]
    return [_describe(name, field, lambda *_: UNKNOWN) for name, field in zip(names, fields)]


def _weights(
    weights: Sequence[tuple[str, Any]], placed: tvm.IRModule, chosen: Mapping[str, Target]
) -> list[ParamInfo]:
    """Each weight with the device that it belongs on; the library lays them out."""
    kinds = devices.kinds(chosen)
    return [
        ParamInfo(name, tuple(map(int, value.shape)), str(value.dtype), kinds[index])
        for (name, value), index in zip(weights, devices.weight_devices(placed))
    ]


def _describe(name: str, ty: Any, unknown: Callable[[str, Any], int]) -> TensorInfo:
    """Name, shape and dtype; `unknown` gives the extent of a dimension that is no number."""
    if not isinstance(ty, relax.TensorType) or ty.ndim < 0:
        raise BuildError(f"{name!r} of main is {ty}; only tensors of known rank can be built")
    dims = ty.shape.values if isinstance(ty.shape, relax.ShapeExpr) else ["?"] * ty.ndim
    shape = tuple(
        int(dim) if isinstance(dim, tvm.tirx.IntImm) else unknown(name, dim) for dim in dims
    )
    return TensorInfo(name, shape, str(ty.dtype))


def _require_number(name: str, dim: Any) -> int:
    raise BuildError(
        f"{name!r} of main has the unknown dimension {dim}; give every dimension a number, for "
        "example through the frontend's argument shape="
    )


def _cpu_features(chosen: Mapping[str, Target]) -> tuple[str, ...]:
    hosts = [t if t.kind.name == "llvm" else t.host for t in chosen.values()]
    return tuple(sorted(set().union(*(targets.cpu_features(h) for h in hosts if h is not None))))
