"""The build driver: from a module to a library.

    bind parameters -> in the cache? -> to Relax's operators -> the steps of `pipeline` -> keep

Whether kernels come from TOPI schedules or from auto_scheduler records is read from the dispatch
contexts that are active in the calling thread (`schedule_source`), never from an argument.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import tvm
from tvm.target import Target

from .. import precision
from .. import target as targets
from ..pass_context import default_opt_level
from ..runtime.factory import FactoryModule
from ..support.scoped_context import lowering_settings
from .bind import bind_params, without_aliases
from .cache import key, library_cache
from .cache.warnings import recorded_warnings
from .external_codegen import Lower, compile_foreign
from .report import Report
from .selection.schedule_source import ScheduleSource
from .subgraph_fallback import build_or_retreat

if TYPE_CHECKING:
    from .steps import State


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

    with default_opt_level():
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
    obstacle = key.obstacle(mod, target, source)
    compiled, foreign_modules = compile_foreign(mod, target, params, lower)
    bound, bound_names = bind_params(compiled, params)
    watch.lap("bind")
    slot = None
    if not obstacle:
        others = (request.mod_name, bound_names, request.notes, *lowering_settings())
        slot = library_cache.Slot.of(bound, target, source, others)
        restored = slot.restore(mod, watch.laps) if slot else None
        watch.lap("restore")
        if restored is not None:
            return restored
    bound = lower(bound)
    watch.lap("lower")
    with library_cache.Keeping(slot) as keeping:
        with recorded_warnings("baton") as messages:
            state, weights = _compile(bound, foreign_modules, request, watch, params, keeping)
        from .metadata import describe

        linked, report = state.linked, state.report
        metadata = describe(state, request.mod_name, bound_names)
        report.weights_bytes = sum(param.nbytes for param in metadata.params)
        report.activations_bytes, report.unknown_activations = linked.activations_bytes
        report.cache = f"{linked.kernels.found} of {len(linked.kernels.code)} kernels"
        if obstacle:
            report.cache += f"; not the library, because {obstacle}"
        if linked.kernels.problem:
            report.cache += _nothing_kept(linked.kernels.problem)
        metadata = replace(metadata, report=report.to_json())
        library = FactoryModule(linked.executable, metadata, weights, report, mod, target)
        library = keeping.finish(library, linked, messages)
    if slot is not None:
        if slot.cache.problem and not linked.kernels.problem:
            report.cache += _nothing_kept(slot.cache.problem)
        watch.lap("keep")
    return library


def _nothing_kept(reason: str) -> str:
    return f"; nothing is kept: {reason}"


def _compile(
    bound: tvm.IRModule,
    foreign_modules: list[Any],
    request: _Request,
    watch: _Stopwatch,
    params: Mapping[str, Any],
    keeping: library_cache.Keeping,
) -> tuple[State, dict[str, Any]]:
    """The steps after parameters are bound, once more for each time that records were wrong.

    Returns
    -------
    state : State
    weights : dict of str to tvm.runtime.Tensor
        The library's, none of them a tensor of the caller's.
    """
    # All passes and schedules, without which a library comes from the cache.
    from . import pipeline
    from .steps import State
    from .validate.validator import Checker

    context = tvm.transform.PassContext.current()
    with Checker() as checker:
        while True:
            report = Report(
                targets.to_cli(request.target),
                request.source.use_topi_schedule,
                int(context.opt_level),
                notes=list(request.notes),
                seconds=watch.laps,
                precision=precision.of_context(context),
            )
            state = State(bound, request.target, request.source, report)
            state.checker, state.foreign = checker, foreign_modules
            before = (*pipeline.PREPARE, *pipeline.SCHEDULE, *pipeline.LIFT)
            pipeline.run(state, before, watch.lap)
            weights = without_aliases(state.weights, params)
            keeping.start(weights)
            pipeline.run(state, pipeline.LINK, watch.lap)
            if state.is_right:
                return state, weights


class _Stopwatch:
    """Seconds that each step of the build took."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = now - self._last
        self._last = now
