"""Replays every record of a log without the module it was tuned for, and checks the results."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import tvm

from schedules.cuda import violation

from ..errors import BatonError, RecordError
from ..lowering.kernel_passes.pipeline import PIPELINE
from ..lowering.validate.validator import Checker, Question
from ..records.ansor.compute_variants import Candidate
from ..records.ansor.dag import read_dag
from ..records.ansor.dag_to_primfunc import unchanged
from ..records.ansor.infer_compute import computes_of_key
from ..records.ansor.layout_rewrite import rewrite_layouts
from ..records.ansor.packing import Packing
from ..records.ansor.record import AnsorRecord, WorkloadKey, decode_key
from ..records.ansor.replay import Replayed, replay
from ..records.ansor.state import apply_steps
from ..records.ansor.steps import kind_of
from ..records.ansor.unrolled import vectorize_unrolled
from ..target import parse
from ..target.nvcc import device_code
from ..tvm_workarounds.index_guard import guard_indices
from .compute_dag import ComputeDAG
from .workload_registry import registered_names

# The oldest architecture that today's CUDA compiles for.
_OLDEST_ARCH = 75
_COMPILER_ERROR = re.compile(r"\b(fatal|error)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Outcome:
    """What became of one record.

    Attributes
    ----------
    source : str
        "auto_scheduler:<log>:<line>".
    workload_key, target : str
    steps : dict of str to int
        How many steps of each kind the record has.
    known : bool
        Whether the compute of its key is known; without it nothing can be replayed.
    replayed : bool
        Whether TensorIR took all steps.
    right : bool
        Whether the kernel computes the right numbers; for CUDA, whether nvcc compiles it and it
        keeps within what a GPU runs.
    reason : str
        Why not; empty when right.
    notes : tuple of str
        Annotations that were left out.
    """

    source: str
    workload_key: str
    target: str
    steps: dict[str, int] = field(default_factory=dict)
    known: bool = False
    replayed: bool = False
    right: bool = False
    reason: str = ""
    notes: tuple[str, ...] = ()


class Rebuilder:
    """Replays records on the computes that their keys name.

    Parameters
    ----------
    target : tvm.target.Target
        This machine's CPU, on which CPU records are run.
    checker : Checker
    computes : callable
        From a workload key to its compute, None where it does not know one; functions that
        scripts registered are known by default. Hashed keys are found by
        `guess.computes_of_key`.
    """

    def __init__(
        self,
        target: Any,
        checker: Checker,
        computes: Callable[[str], Candidate | None] | None = None,
    ) -> None:
        from ..target.config import config_of_object

        self.config = {k: v for k, v in config_of_object(target).items() if k != "host"}
        self.checker = checker
        self._computes = computes or registered_compute
        self._found: dict[str, list[Candidate]] = {}
        self._more: dict[str, Iterator[Candidate]] = {}

    def rebuild(self, record: AnsorRecord) -> Outcome:
        """Replay one record; a failure is part of the outcome."""
        outcome = Outcome(
            record.source,
            record.workload_key,
            record.log_target.kind,
            dict(Counter(map(kind_of, record.steps))),
        )
        try:
            compute = self.compute(record)
        except RecordError as error:
            return replace(outcome, reason=str(error))
        if compute is None:
            return replace(outcome, reason=_unknown(record.key))
        try:
            replayed = replay(compute.dag, record.steps, same_extents=False)
        except RecordError as error:
            return replace(outcome, known=True, reason=str(error))
        reason = (
            self._fault(compute, replayed)
            if record.log_target.kind == "llvm"
            else _generate(guard_indices(replayed.func), record)
        )
        return replace(
            outcome,
            known=True,
            replayed=True,
            right=not reason,
            reason=reason,
            notes=replayed.notes,
        )

    def _fault(self, compute: Candidate, replayed: Replayed) -> str:
        """Why the replayed kernel is not right; empty if it is."""
        count = len(compute.dag.inputs)
        plain = Candidate(compute.dag, tuple((i, Packing()) for i in range(count)))
        func, packings = rewrite_layouts(plain, replayed, frozenset(range(count)))
        operands = tuple((i, packings.get(i, Packing())) for i in range(count))
        results = len(compute.dag.outputs)
        scheduled = guard_indices(vectorize_unrolled(func))
        question = Question(compute.dag.func, scheduled, operands, results, self.config)
        return self.checker.check(question).reason

    def compute(self, record: AnsorRecord) -> Candidate | None:
        """The compute of a record's workload key, if it is known.

        Of several that share the key it is one whose loops are as long as the record says.
        """
        key = record.workload_key
        if key not in self._found:
            own = self._computes(key)
            self._found[key] = [] if own is None else [own]
            self._more[key] = computes_of_key(key) if own is None else iter(())
        for candidate in self._candidates(key):
            try:
                apply_steps(candidate.dag, record.steps)
            except RecordError:
                continue
            return candidate
        return next(iter(self._found[key]), None)

    def _candidates(self, key: str) -> Iterator[Candidate]:
        """Computes of a key: those found before, and then others."""
        yield from self._found[key]
        for candidate in self._more[key]:
            self._found[key].append(candidate)
            yield candidate


def registered_compute(key: str) -> Candidate | None:
    """The compute of a function that a script registered; None if the key names none.

    Raises
    ------
    RecordError
        The function fails, or gives what Ansor could not schedule.
    """
    name = decode_key(key).name
    if name not in registered_names():
        return None
    try:
        dag = read_dag(ComputeDAG(key).func)
    except RecordError:
        raise
    except Exception as error:  # whatever the user's function raises
        reason = f"{type(error).__name__}: {error}"
        raise RecordError(f"the registered function {name!r} fails: {reason}") from error
    return Candidate(dag, unchanged(dag).operands)


def _unknown(key: WorkloadKey) -> str:
    if key.is_hash:
        return "the compute of its key is not known"
    return f"the compute of its key is not known: no script registers the function {key.name!r}"


def _generate(func: Any, record: AnsorRecord) -> str:
    """Generate code for a record's device; why that fails, or nothing."""
    kind, told = record.log_target.kind, ""
    try:
        target = parse(_modern(record.target_text))
    except BatonError as error:
        return str(error).splitlines()[0]
    try:
        mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
        with target, device_code():
            tvm.compile(mod, target=target, tir_pipeline=PIPELINE)
    except BatonError as error:
        told = _compilers_line(str(error))
    except Exception as error:  # TVM's code generators raise what they like
        lines = [line for line in str(error).splitlines() if line.strip()]
        return f"no code for {kind}: {(lines or ['?'])[-1][:200]}"
    beyond = violation(func, target) if kind == "cuda" else None
    if beyond is None:
        return told
    if "exceed" in beyond:  # the amounts are the record's own, as TVM's bound inference had them
        beyond = f"beyond what a GPU runs, in any TVM: {beyond}"
    return f"{told} ({beyond})" if told else beyond


def _compilers_line(text: str) -> str:
    """The line of a compiler's output that says what is wrong."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    telling = [line for line in lines[1:] if _COMPILER_ERROR.search(line)]
    return (telling or lines or ["?"])[0][:300]


def _modern(text: str) -> str:
    """The target with an architecture that today's compiler has."""
    words = text.split()
    arch = next((w.partition("=sm_")[2] for w in words if w.startswith("-arch=sm_")), "")
    if words[0] == "cuda" and (not arch.isdigit() or int(arch) < _OLDEST_ARCH):
        kept = [word for word in words if not word.startswith("-arch=")]
        return " ".join([*kept, f"-arch=sm_{_OLDEST_ARCH}"])
    return text
