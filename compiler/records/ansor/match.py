"""Finds the record of Ansor's for a kernel of a module, and replays it there.

A kernel's compute is brought into each form that TVM may have given Ansor (`candidates.py`),
printed in the names of every era (`tvm_versions.py`), and its key looked up. Where no hash agrees,
records for operands of the same extents are tried, the cheapest first: their steps must fit the
compute. Either way the result is checked against the kernel's own compute before it is used.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tvm import tirx

from schedules.strategy import DIRECT
from schedules.winograd import algorithm

from ...errors import RecordError
from ..auto_scheduler.workload import workload_key
from ..log_target import log_target
from .compute_variants import candidates
from .dag import read_dag
from .dag_text import dag_hash, dag_text
from .dag_to_primfunc import Candidate, unchanged
from .layout_rewrite import rewrite_layouts
from .packing import Packing
from .record import AnsorRecord, WorkloadKey
from .replay import replay
from .tvm_versions import namings
from .unrolled import vectorize_unrolled
from .winograd import KERNEL

if TYPE_CHECKING:
    from ..auto_scheduler.dispatcher import DispatchContext

logger = logging.getLogger("baton.auto_scheduler")

# Records of one kernel that are tried before it takes its TOPI schedule.
_TRIES = 4


@dataclass(frozen=True)
class Match:
    """A kernel, scheduled by a record."""

    func: tirx.PrimFunc  # the scheduled function
    # For each of its inputs the kernel's parameter that it is made from
    operands: tuple[tuple[int, Packing], ...]
    record: AnsorRecord
    by_hash: bool  # whether the record's key is the kernel's, and not only its shapes
    notes: tuple[str, ...] = ()  # what of the record TensorIR did not allow and was left out

    @property
    def algorithm(self) -> str:
        """As the build's report names it: weights are multiplied for Winograd's alone."""
        steps = (step for _, packing in self.operands for step in packing.steps)
        points = next((len(step[1]) for step in steps if step[0] == "matrix"), 0)
        m = points - KERNEL + 1
        return algorithm((m, m), (KERNEL, KERNEL)) if points else DIRECT


def matches(
    func: tirx.PrimFunc, known: frozenset[int], target: Any, contexts: Iterable[DispatchContext]
) -> Iterator[Match]:
    """Ways to schedule a kernel by records of `contexts` (innermost first), best matches first."""
    described, contexts = log_target(target), tuple(contexts)
    try:
        dag = read_dag(func)
    except RecordError as error:
        logger.debug("a kernel that Ansor could not schedule: %s", error)
        return
    refused: list[str] = []
    tried: set[str] = set()
    for record in _of_own_key(func, described, contexts):
        match = _replayed(unchanged(dag), record, known, True, refused)
        if match is not None:
            yield match
    plausible = []
    for candidate in candidates(dag, known):
        dims = tuple(dim for shape in candidate.dag.operand_shapes for dim in shape)
        plausible.append((candidate, dims))
        for record in _of_keys(candidate, dims, described, contexts):
            if len(tried) == _TRIES or record.source in tried:
                continue
            tried.add(record.source)
            match = _replayed(candidate, record, known, True, refused)
            if match is not None:
                yield match
    for candidate, dims in plausible:
        for context in contexts:
            for record in context.find_by_shapes(described, dims):
                if len(tried) == _TRIES or record.source in tried:
                    continue
                match = _replayed(candidate, record, known, False, [])
                if match is not None:
                    tried.add(record.source)
                    yield match
    for reason in refused:
        logger.warning("%s", reason)


def _of_own_key(
    func: tirx.PrimFunc, target: Any, contexts: tuple[DispatchContext, ...]
) -> Iterator[AnsorRecord]:
    """Records of schedules that a script made of the task itself, under Baton's key."""
    asked = [context for context in contexts if context.has_ansor]
    if asked:
        key = WorkloadKey(workload_key(func), ())
        for context in asked:
            yield from context.find_ansor(target, key)


def _of_keys(
    candidate: Candidate, dims: tuple[int, ...], target: Any, contexts: tuple[DispatchContext, ...]
) -> Iterator[AnsorRecord]:
    """Records under the keys that a candidate had in each era."""
    if not any(context.may_have(target, dims) for context in contexts):
        return
    asked = set()
    for names in namings(candidate.dag):
        try:
            name = dag_hash(dag_text(candidate.dag, names, candidate.texts))
        except RecordError as error:
            logger.debug("a kernel without a hash: %s", error)
            return
        if name not in asked:
            asked.add(name)
            for context in contexts:
                yield from context.find_ansor(target, WorkloadKey(name, dims))


def _replayed(
    candidate: Candidate,
    record: AnsorRecord,
    known: frozenset[int],
    by_hash: bool,
    refused: list[str],
) -> Match | None:
    try:
        replayed = replay(candidate.dag, record.steps, same_extents=not by_hash)
    except RecordError as error:
        refused.append(f"{record.source.partition(':')[2]}: can't be replayed: {error}")
        return None
    func, packings = rewrite_layouts(candidate, replayed, known)
    if record.log_target.kind == "llvm":
        func = vectorize_unrolled(func)
    operands = tuple(
        (index, packing.then(*packings.get(position, Packing()).steps))
        for position, (index, packing) in enumerate(candidate.operands)
    )
    return Match(func, operands, record, by_hash, replayed.notes)
