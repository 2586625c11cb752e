"""Replays every record of a log without the module it was tuned for, and checks the results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import tvm

from ...errors import BatonError, RecordError
from ...lowering.index_guard import guard_indices
from ...lowering.tir_pipeline import PIPELINE
from ...target import parse
from ...target.nvcc import device_code
from .candidates import Candidate
from .check import Checker, Question
from .guess import compute_of_key
from .layout_rewrite import rewrite_layouts
from .packing import Packing
from .record import AnsorRecord
from .replay import Replayed, replay
from .steps import kind_of
from .unrolled import vectorize_unrolled

# The oldest architecture that today's CUDA compiles for.
_OLDEST_ARCH = 75


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
        Whether the kernel computes the right numbers; for a GPU that is not here, whether device
        code was generated for it.
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
    computes : callable, optional
        From a workload key to its compute, for keys of registered functions; None where it
        does not know one. Hashed keys are found by `guess.compute_of_key`.
    """

    def __init__(
        self,
        target: Any,
        checker: Checker,
        computes: Callable[[str], Candidate | None] | None = None,
    ) -> None:
        from ...target.config import config_of_object

        self.config = {k: v for k, v in config_of_object(target).items() if k != "host"}
        self.checker = checker
        self._computes = computes
        self._found: dict[str, Candidate | None] = {}

    def rebuild(self, record: AnsorRecord) -> Outcome:
        """Replay one record; a failure is part of the outcome."""
        outcome = Outcome(
            record.source,
            record.workload_key,
            record.log_target.kind,
            dict(Counter(map(kind_of, record.steps))),
        )
        compute = self.compute(record.workload_key)
        if compute is None:
            return replace(outcome, reason="the compute of its key is not known")
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

    def compute(self, key: str) -> Candidate | None:
        """The compute of a workload key, if it is known."""
        if key not in self._found:
            found = self._computes(key) if self._computes else None
            self._found[key] = found or compute_of_key(key)
        return self._found[key]


def _generate(func: Any, record: AnsorRecord) -> str:
    """Generate code for a record's device; why that fails, or nothing."""
    try:
        target = parse(_modern(record.target_text))
        mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
        with target, device_code():
            tvm.compile(mod, target=target, tir_pipeline=PIPELINE)
    except BatonError as error:
        return str(error).splitlines()[0]
    except Exception as error:  # TVM's code generators raise what they like
        lines = [line for line in str(error).splitlines() if line.strip()]
        return f"no code for {record.log_target.kind}: {(lines or ['?'])[-1][:200]}"
    return ""


def _modern(text: str) -> str:
    """The target with an architecture that today's compiler has."""
    words = text.split()
    arch = next((w.partition("=sm_")[2] for w in words if w.startswith("-arch=sm_")), "")
    if words[0] == "cuda" and (not arch.isdigit() or int(arch) < _OLDEST_ARCH):
        kept = [word for word in words if not word.startswith("-arch=")]
        return " ".join([*kept, f"-arch=sm_{_OLDEST_ARCH}"])
    return text
