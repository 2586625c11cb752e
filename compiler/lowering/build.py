"""The build driver: from a module to a library.

    bind parameters -> in the cache? -> the steps of `pipeline` -> keep

Whether kernels come from TOPI schedules or from auto_scheduler records is read from the dispatch
contexts that are active in the calling thread (`schedule_source`), never from an argument.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import tvm
from tvm.target import Target

from .. import precision
from .. import target as targets
from ..pass_context import default_opt_level
from ..runtime.factory import FactoryModule
from ..support.scoped_context import non_default_lowering_options
from .bind import bind_params, without_aliases
from .cache import key, library_cache
from .cache.warnings import recorded_warnings
from .report import Report
from .selection.schedule_source import ScheduleSource

if TYPE_CHECKING:
    from .steps import State

_logger = logging.getLogger("baton.lowering")


def build(
    mod: tvm.IRModule,
    target: Target,
    params: Mapping[str, Any] | None = None,
    mod_name: str = "default",
) -> FactoryModule:
    """Compile a module of Relax operators to a library.

    Accepted subgraphs of `mod` are separate functions; those that name no target use `target`.
    Unknown names in `params` are ignored. `mod_name` names the library function that makes an
    executor. Raises BuildError: a parameter does not fit, or a kernel does not compile. Raises
    UnavailableTargetError: a target can't be compiled for on this machine.
    """
    with default_opt_level():
        request = BuildRequest(mod, target, params or {}, mod_name)
        return request.cached_library() or request.build_library(request.bound)


class BuildRequest:
    """One build in the contexts of the calling thread, looked up in the cache before it is done.

    The cache key comes from the module as given, so a caller lowers to Relax operators only when
    `cached_library` finds nothing. So `mod` may still have Relay operators; `bound` is `mod` with
    its parameters bound. `notes`: first notes of the report. `external_modules`: code of external
    code generators that `mod` calls.
    """

    def __init__(
        self,
        mod: tvm.IRModule,
        target: Target,
        params: Mapping[str, Any],
        mod_name: str,
        notes: Sequence[str] = (),
        external_modules: Sequence[Any] = (),
    ) -> None:
        self.mod, self.target, self.params, self.mod_name = mod, target, params, mod_name
        self.source = ScheduleSource.from_contexts()
        self.notes = (*notes, *self.source.notes)
        self.external_modules = list(external_modules)
        for note in self.source.notes:
            _logger.warning(note)
        self.watch = _Stopwatch()
        self.bound, self.bound_names = bind_params(mod, params)
        self.watch.lap("bind")
        self._obstacle = key.obstacle(mod, target, self.source)
        self._slot: library_cache.CacheEntry | None = None

    def cached_library(self) -> FactoryModule | None:
        if self._obstacle:
            return None
        others = (self.mod_name, self.bound_names, self.notes, *non_default_lowering_options())
        self._slot = library_cache.CacheEntry.of(self.bound, self.target, self.source, others)
        restored = self._slot.restore(self.mod, self.watch.laps) if self._slot else None
        self.watch.lap("restore")
        return restored

    def build_library(self, lowered: tvm.IRModule) -> FactoryModule:
        """Compile `bound`, lowered to Relax operators, and keep the library in the cache."""
        self.watch.lap("lower")
        slot = self._slot
        with library_cache.CacheWriter(slot) as keeping:
            with recorded_warnings("baton") as messages:
                state, weights = _compile(lowered, self, keeping)
            from .metadata import describe

            linked, report = state.linked, state.report
            metadata = describe(state, self.mod_name, self.bound_names)
            report.weights_bytes = sum(param.nbytes for param in metadata.params)
            report.activations_bytes, report.unknown_activations = linked.activations_bytes
            report.cache = f"{linked.kernels.found} of {len(linked.kernels.code)} kernels"
            if self._obstacle:
                report.cache += f"; not the library, because {self._obstacle}"
            if linked.kernels.problem:
                report.cache += _nothing_kept(linked.kernels.problem)
            metadata = replace(metadata, report=report.to_json())
            library = FactoryModule(
                linked.executable, metadata, weights, report, self.mod, self.target
            )
            library = keeping.finish(library, linked, messages)
        if slot is not None:
            if slot.cache.problem and not linked.kernels.problem:
                report.cache += _nothing_kept(slot.cache.problem)
            self.watch.lap("keep")
        return library


def _nothing_kept(reason: str) -> str:
    return f"; nothing is kept: {reason}"


def _compile(
    bound: tvm.IRModule, request: BuildRequest, keeping: library_cache.CacheWriter
) -> tuple[State, dict[str, Any]]:
    """Run the steps again until no record is wrong; also return the library's own weights."""
    # Import all passes and schedules here: a library from the cache needs none of them.
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
                seconds=request.watch.laps,
                precision=precision.of_context(context),
            )
            state = State(bound, request.target, request.source, report)
            state.checker, state.foreign = checker, request.external_modules
            before = (*pipeline.PREPARE, *pipeline.SCHEDULE, *pipeline.LIFT)
            pipeline.run(state, before, request.watch.lap)
            weights = without_aliases(state.weights, request.params)
            keeping.start(weights)
            pipeline.run(state, pipeline.LINK, request.watch.lap)
            if state.is_right:
                return state, weights


class _Stopwatch:
    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = now - self._last
        _logger.debug("%s: %.3f s", name, self.laps[name])
        self._last = now
