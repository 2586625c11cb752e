"""Build steps of `pipeline`, which change the state of a build."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import tvm
from tvm import relax
from tvm.target import Target

from schedules.x86.machine.dot_product import has_bfloat16

from .. import target as targets
from ..ir import shape_hints
from ..ir.convert_layout import CHANNELS_LAST, convert_layout
from ..ir.dynamic_shape import rename_extents
from . import pass_flags
from .codegen import cuda_graph, device_placement
from .codegen.compile_kernels import with_modules
from .codegen.lift_constants import lift_constants
from .codegen.link import Linked, link
from .codegen.loops import hoist_constants
from .codegen.workspaces import lift_workspaces
from .graph_passes.batch_provenance import Provenance, provenance
from .graph_passes.bf16_matmul import bfloat16_products
from .graph_passes.check_bounds import check_bounds
from .graph_passes.combine_matmul import combine_matmul
from .graph_passes.dynamic_batch_loop import Samples, any_samples, over_samples
from .graph_passes.dynamic_conv_im2col import multiply_patches
from .graph_passes.fuse import fuse
from .graph_passes.hoist_conv_strides import move_strides
from .graph_passes.insert_bounds_checks import check_indices, limited_takes
from .graph_passes.kv_cache import keep_kv_cache
from .graph_passes.lower_qdq_to_int8 import compute_on_integers
from .graph_passes.merge_row_kernels import merge_row_kernels
from .graph_passes.shape_multiversioning import specialize
from .graph_passes.split_batch import is_recorded, split_batch
from .offloaded_functions import bind_constant_arguments, function_targets, inline_subgraphs
from .report import Report
from .selection import auto_scheduler_records
from .selection.ops import gpu
from .selection.schedule import schedule_kernels
from .selection.schedule_source import ScheduleSource
from .selection.select_implementations import select_implementations
from .simplify import simplify
from .validate.validator import Checker

GRAPH_NOTE = "launches are replayed as a CUDA graph"

Rewrite: TypeAlias = Callable[[tvm.IRModule, str], tvm.IRModule]  # of one function of a module


@dataclass
class State:
    """State that the steps of a build share."""

    mod: tvm.IRModule
    target: Target  # of `main`
    source: ScheduleSource
    report: Report
    # By Relax function; a step that makes functions adds theirs
    targets: dict[str, Target] = field(init=False)
    checker: Checker | None = None  # for kernels of Ansor's records
    foreign: list[Any] = field(default_factory=list)  # code that backends compiled by themselves
    # As users see `main`: after the graph passes, before anything is chosen
    described: tvm.IRModule = field(init=False)
    # Kernels with records, and the module of that time
    found: auto_scheduler_records.Recorded = field(init=False)
    samples: Provenance | None = None
    operators: dict[str, list[str]] = field(default_factory=dict)  # of each kernel
    nodes: dict[str, list[str]] = field(default_factory=dict)  # of the model, of each kernel
    # The Relax functions of subgraphs and their scheduled kernels
    scheduled: tvm.IRModule = field(init=False)
    weights: list[tuple[str, Any]] = field(default_factory=list)
    linked: Linked = field(init=False)
    # The module, where its number of samples is unknown and it is built for one
    any_samples: Samples | None = None
    # False where a record made a kernel that is wrong; the build starts again without it
    is_right: bool = True

    def __post_init__(self) -> None:
        self.take(self.mod)

    def take(self, mod: tvm.IRModule, found: auto_scheduler_records.Recorded | None = None) -> None:
        """Replace the module; `described` keeps the dynamic number of samples that users see."""
        self.mod = mod
        if self.any_samples is None:
            self.described = mod
        self.found = found or auto_scheduler_records.Recorded(mod)
        self.targets = function_targets(mod, self.target)

    def functions_without_records(self) -> list[tuple[str, Target]]:
        """Name and target of each function that was not made for a recorded kernel."""
        return [each for each in self.targets.items() if each[0] not in self.found.records]


def simplify_module(state: State) -> None:
    reached = relax.transform.DeadCodeElimination(["main"])(state.mod)
    state.take(simplify(bind_constant_arguments(reached)))
    if state.target.kind.name == "llvm" and state.source.use_topi_schedule:
        state.any_samples = any_samples(state.mod)
    if state.any_samples is not None:
        state.take(state.any_samples.one)
        state.described = state.any_samples.mod
    for each in {str(target): target for target in state.targets.values()}.values():
        targets.check_buildable(each)


def keep_cache(state: State) -> None:
    """Make `main` append rows to buffers where the module requests a kv-cache."""
    mod = keep_kv_cache(state.mod)
    if mod is not state.mod:
        state.take(mod)


def specialize_sizes(state: State) -> None:
    """Add specialized functions for the extents that the module names."""
    if state.any_samples is not None:
        asked = shape_hints.asked(state.described["main"])
        note = "samples are computed one by one with static kernels, whatever sizes are named"
        state.report.notes += [note] if asked else []
        return
    mod = specialize(state.mod)
    if mod is not state.mod:
        described = state.described
        state.take(mod)
        state.described = described


def use_integers(state: State) -> None:
    """Lower quantized networks to integer arithmetic on CPUs, and note the remaining operators."""
    mod = state.mod
    for name, target in state.targets.items():
        if target.kind.name == "llvm":
            mod, notes = compute_on_integers(mod, name)
            state.report.notes += notes
    if mod is not state.mod:
        state.take(mod)


def set_aside_recorded(state: State) -> None:
    if state.source.use_topi_schedule:
        return
    assert state.checker is not None
    disabled = pass_flags.disabled_implementations()
    found = auto_scheduler_records.outline_recorded_kernels(
        state.mod, state.targets, state.source, state.checker, disabled
    )
    state.take(found.mod, found)
    state.report.notes += found.notes


def move_all_strides(state: State) -> None:
    """Hoist strides of 1x1 convolutions on CPUs, except for operators with records."""
    if state.source.extracting:
        return
    for name, target in state.functions_without_records():
        if target.kind.name == "llvm" and not state.found.templates.get(name):
            keeps = partial(is_recorded, target=target, query=state.source.autotvm_known)
            state.mod = move_strides(state.mod, name, keeps)


def split_the_batch(state: State) -> None:
    """Split the batch of `main` where that pays, except for operators with records."""
    own = state.found.templates.get("main", {})
    main, query = state.targets["main"], state.source.autotvm_known
    state.mod, note = split_batch(state.mod, main, query, own)
    state.report.notes += [note] if note else []
    state.targets = function_targets(state.mod, state.target)


def check_all_indices(state: State) -> None:
    """Insert bounds checks; indices of recorded kernels are constant."""
    for name, target in state.targets.items():
        if name in state.found.records:
            state.mod = limited_takes(state.mod, name)
        else:
            state.mod = check_indices(state.mod, name, target.kind.name == "llvm")


def loop_over_samples(state: State) -> None:
    """Loop kernels for one batch element over any number of them."""
    if state.any_samples is not None:
        state.mod = over_samples(state.mod, state.any_samples)


def follow_samples(state: State) -> None:
    state.samples = provenance(state.mod)


def rename_for_cuda(state: State) -> None:
    """Rename the extents of a module with kernels for CUDA."""
    if any(target.kind.name == "cuda" for target in state.targets.values()):
        state.mod = rename_extents(state.mod)


def _on_devices(are_cpus: bool, rewrite: Rewrite) -> Callable[[State], None]:
    """The step that rewrites each function for these devices that is not a recorded kernel."""

    def step(state: State) -> None:
        for name, target in state.functions_without_records():
            if (target.kind.name == "llvm") == are_cpus:
                state.mod = rewrite(state.mod, name)

    return step


on_cpus, on_gpus = partial(_on_devices, True), partial(_on_devices, False)


def convert_layouts(state: State) -> None:
    """Put channels first for CPUs, and last for what tensor cores multiply."""
    for name, target in state.functions_without_records():
        if target.kind.name == "llvm":
            state.mod = convert_layout(state.mod, name)
        elif gpu.is_gpu(target) and not state.source.extracting:
            wanted = gpu.channels_last(
                target, state.source.autotvm_known, pass_flags.TO_TF32.enabled
            )
            state.mod = convert_layout(state.mod, name, CHANNELS_LAST, wanted)


def multiply_bfloat16(state: State) -> None:
    """Have CPUs multiply bfloat16; note those without the instruction where it is asked for."""
    for name, target in state.functions_without_records():
        if has_bfloat16(target):
            options = (pass_flags.TO_BFLOAT16.enabled, pass_flags.WINOGRAD.enabled)
            state.mod = bfloat16_products(state.mod, name, target, *options)
        elif pass_flags.TO_BFLOAT16.enabled:
            note = f"{target} has no AVX512-BF16: its products stay in float32"
            state.report.notes += [note] if note not in state.report.notes else []


def multiply_all_patches(state: State) -> None:
    """Have CPUs multiply patches of images of unknown extents, or their Winograd transforms."""
    for name, target in state.functions_without_records():
        if target.kind.name == "llvm":
            state.mod = multiply_patches(state.mod, name, target, pass_flags.WINOGRAD.enabled)


def combine(state: State) -> None:
    for name, target in state.functions_without_records():
        own = state.found.templates.get(name)
        state.mod = combine_matmul(state.mod, name, target, state.source.autotvm_known, own)


def select(state: State) -> None:
    for name, target in state.functions_without_records():
        state.mod = select_implementations(
            state.mod,
            name,
            target,
            state.source.autotvm_query,
            keep_layouts=not pass_flags.BLOCK_LAYOUTS.enabled,
            fuse_attention=pass_flags.FUSE_ATTENTION.enabled,
            disabled=pass_flags.disabled_implementations(),
            own_queries=state.found.templates.get(name),
            known=state.samples,
            may_round=pass_flags.TO_FLOAT16.enabled,
            skipped=state.source.skipped,
        )


def dispatch_all_sorts(state: State) -> None:
    state.mod = device_placement.dispatch_sorts(state.mod, state.targets)


def fuse_operators(state: State) -> None:
    in_place = state.target.kind.name == "llvm" and pass_flags.CONCAT_IN_PLACE.enabled
    state.mod, state.operators, state.nodes = fuse(state.mod, state.target, in_place)


def merge_rows(state: State) -> None:
    """Merge kernels of rows for CUDA devices."""
    for name, target in state.functions_without_records():
        if target.kind.name == "cuda":
            tf32 = pass_flags.TO_TF32.enabled
            state.mod, merged = merge_row_kernels(state.mod, name, target, tf32)
            for made, kernels in merged.items():
                for facts in (state.operators, state.nodes):
                    facts[made] = [each for kernel in kernels for each in facts.get(kernel, [])]


def schedule(state: State) -> None:
    found, source, report = state.found, state.source, state.report
    failed: set[str] = set()
    state.mod, report.kernels = schedule_kernels(
        *(state.mod, state.targets, state.operators, found.records),
        fast_math=pass_flags.FAST_MATH.enabled,
        tf32=pass_flags.TO_TF32.enabled,
        failed=failed,
    )
    state.is_right = not source.skip(failed)
    if pass_flags.TO_TF32.enabled and not gpu.has_tensor_cores(state.target):
        report.notes.append(f"{state.target} has no TF32: its products stay in float32")
    for kernel in report.kernels:
        kernel.nodes = state.nodes.get(kernel.name, [])
        kernel.remark = source.slower.get(kernel.source, "")
    if not source.use_topi_schedule:
        report.notes += auto_scheduler_records.warn_missing(source)
    report.logs = source.log_uses(state.target, {kernel.source for kernel in report.kernels})
    disabled = pass_flags.disabled_implementations()
    passed_over = source.passed_over(state.targets.values(), disabled)
    report.notes += passed_over or auto_scheduler_records.warn_unused(report.logs)


def check_all_bounds(state: State) -> None:
    """Insert checks into CPU kernels of extents that no operator rule checks."""
    state.mod = check_bounds(state.mod, state.target)


def inline_offloaded(state: State) -> None:
    state.scheduled = state.mod
    state.mod = inline_subgraphs(state.mod)


def lift_weights(state: State) -> None:
    state.mod, state.weights = lift_constants(hoist_constants(state.mod))


def place_on_devices(state: State) -> None:
    state.mod = device_placement.place(state.mod, state.target, state.targets)


def attach_foreign(state: State) -> None:
    state.mod = with_modules(state.mod, state.foreign)


def link_library(state: State) -> None:
    has_graph = False
    if state.target.kind.name == "cuda":
        state.mod = lift_workspaces(state.mod)
        reason = cuda_graph.obstacle(state.mod)
        state.report.notes.append(f"no CUDA graph: {reason}" if reason else GRAPH_NOTE)
        has_graph = not reason
    state.linked = link(state.mod, state.target, has_graph)
    state.report.drop(state.linked.dropped)


def check_replayed(state: State) -> None:
    """Record whether the compiled kernels of Ansor records are valid."""
    if state.found.unchecked:
        assert state.checker is not None
        code = state.linked.kernels.code
        state.is_right &= auto_scheduler_records.replayed_kernels_valid(
            state.found, code, state.checker
        )
