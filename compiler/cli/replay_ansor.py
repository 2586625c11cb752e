"""`baton replay --all-records` for logs of TVM's old auto_scheduler: step kinds and their fate."""

from __future__ import annotations

import re
import runpy
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .console import Steps, show, table
from .replay import Checked

if TYPE_CHECKING:
    from compiler.auto_scheduler.replay_log import Outcome


class CheckedSteps(Checked):
    """What became of every record of some logs of TVM's old auto_scheduler."""

    @property
    def all_right(self) -> bool:
        """Whether every successful record was replayed and computes the right numbers."""
        return all(outcome.right for outcome in self.outcomes)


def is_ansor_log(path: str) -> bool:
    """Whether the first record of a log is one of TVM's old auto_scheduler.

    Raises
    ------
    RecordError
        The file can't be read.
    """
    import json

    from compiler.records.ansor.record import looks_like
    from compiler.records.autotvm.record import read_lines

    for line in read_lines(path, "tuning log"):
        if line.strip() and not line.startswith("#"):
            try:
                return looks_like(json.loads(line))
            except (ValueError, RecursionError):
                return False
    return False


def check_ansor_records(
    logs: Sequence[str],
    target: str,
    steps: Steps | None = None,
    workloads: Sequence[Path] = (),
) -> CheckedSteps:
    """Replay every successful record and check its numbers on this machine.

    Parameters
    ----------
    target : str
        Of this machine.
    workloads : sequence of Path
        Scripts that register the functions whose names are keys of the logs.

    Raises
    ------
    RecordError
        A log that can't be read.
    InputError
        A script that fails.
    """
    from compiler.auto_scheduler.replay_log import Rebuilder
    from compiler.lowering.validate.validator import Checker
    from compiler.records.ansor.record import AnsorRecord
    from compiler.records.auto_scheduler.record import scan
    from compiler.target import parse

    steps = steps or Steps()
    for script in workloads:
        _register(script)
    outcomes, failed = [], 0
    with Checker() as checker:
        rebuilder = Rebuilder(parse(target), checker)
        for log in logs:
            with steps.step("replay", log), steps.counted(Path(log).name) as status:
                for record in scan(log):
                    if not isinstance(record, AnsorRecord):
                        continue
                    if record.error:
                        failed += 1
                        continue
                    outcomes.append(rebuilder.rebuild(record))
                    status.update(f"{len(outcomes)} records")
    return CheckedSteps(tuple(outcomes), failed)


def _register(script: Path) -> None:
    """Run a script, which may be written for an old TVM, for the workloads that it registers."""
    import compiler.legacy
    from compiler.errors import InputError

    compiler.legacy.install(everything=True)
    try:
        runpy.run_path(str(script), run_name="workloads")
    except Exception as error:  # whatever a user's script raises
        raise InputError(f"{script}: {type(error).__name__}: {error}") from error


def show_checked_steps(checked: CheckedSteps) -> None:
    """Print for each kind of target how records and step kinds fared, and why some failed."""
    for kind in sorted({outcome.target for outcome in checked.outcomes}):
        _show_kind(kind, [outcome for outcome in checked.outcomes if outcome.target == kind])
    checked.show_failed()


def _show_kind(kind: str, outcomes: Sequence[Outcome]) -> None:
    """Of one kind of target."""
    known = sum(outcome.known for outcome in outcomes)
    replayed = sum(outcome.replayed for outcome in outcomes)
    right = sum(outcome.right for outcome in outcomes)
    # A kernel for the CPU is run and compared; one for a GPU is compiled.
    good = "right" if kind == "llvm" else "compiled"
    show(
        f"{len(outcomes)} records for {kind}: {known} of a known compute, "
        f"{replayed} replayed, {right} {good}"
    )
    counts = step_counts(outcomes)
    columns = ("step", "records", "steps", f"in {good} kernels", *_FATES)
    rows = [(step, *numbers) for step, numbers in sorted(counts.items())]
    show(table(columns, rows, numbers=6))
    reasons: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        if not outcome.right:
            reasons.setdefault(_NUMBER.sub("#", outcome.reason), []).append(outcome)
    if reasons:
        failures = [
            (_fate(some[0]), some[0].reason, len(some), some[0].source)
            for some in sorted(reasons.values(), key=len, reverse=True)
        ]
        show(table(("failed", "reason, of the first", "records", "first"), failures))
    notes = Counter(note for outcome in outcomes for note in outcome.notes)
    if notes:
        show(table(("left out", "records"), list(notes.most_common())))


# Why a record's steps are in no kernel, and the numbers by which its reason differs from others'.
_FATES = ("unknown compute", "step refused", "kernel refused")
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+(\.\d+)?(e[+-]?\d+)?")


def _fate(outcome: Outcome) -> str:
    return _FATES[outcome.known + outcome.replayed]


def step_counts(outcomes: Sequence[Outcome]) -> dict[str, tuple[int, ...]]:
    """By kind of step: records that have it, steps, steps in good kernels, and in the others.

    The others are those whose compute is not known, of which TensorIR refuses a step, and whose
    kernel is wrong or can't be compiled.
    """
    counts: dict[str, list[int]] = {}
    for outcome in outcomes:
        column = 2 if outcome.right else 3 + _FATES.index(_fate(outcome))
        for step, count in outcome.steps.items():
            numbers = counts.setdefault(step, [0] * 6)
            numbers[0] += 1
            numbers[1] += count
            numbers[column] += count
    return {step: tuple(numbers) for step, numbers in counts.items()}
