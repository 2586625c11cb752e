"""`baton replay --all-records` for logs of TVM's old auto_scheduler: step kinds and their fate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .console import Steps, show, table

if TYPE_CHECKING:
    from compiler.auto_scheduler.ansor.rebuild import Outcome


@dataclass(frozen=True)
class CheckedSteps:
    """What became of every record of some logs."""

    outcomes: tuple[Outcome, ...]
    failed_records: int

    @property
    def all_right(self) -> bool:
        """Whether every successful record was replayed and computes the right numbers."""
        return all(outcome.right for outcome in self.outcomes)

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists and numbers."""
        return {
            "outcomes": [asdict(outcome) for outcome in self.outcomes],
            "failed_records": self.failed_records,
        }


def is_ansor_log(path: str) -> bool:
    """Whether the first record of a log is one of TVM's old auto_scheduler.

    Raises
    ------
    RecordError
        The file can't be read.
    """
    import json

    from compiler.auto_scheduler.ansor.record import looks_like
    from compiler.autotvm.record import read_lines

    for line in read_lines(path, "tuning log"):
        if line.strip() and not line.startswith("#"):
            try:
                return looks_like(json.loads(line))
            except (ValueError, RecursionError):
                return False
    return False


def check_ansor_records(
    logs: Sequence[str], target: str, steps: Steps | None = None
) -> CheckedSteps:
    """Replay every successful record and check its numbers on this machine.

    Parameters
    ----------
    target : str
        Of this machine.

    Raises
    ------
    RecordError
        A log that can't be read.
    """
    from compiler.auto_scheduler.ansor.check import Checker
    from compiler.auto_scheduler.ansor.rebuild import Rebuilder
    from compiler.auto_scheduler.ansor.record import AnsorRecord
    from compiler.auto_scheduler.record import scan
    from compiler.target import parse

    steps = steps or Steps()
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


def show_checked_steps(checked: CheckedSteps) -> None:
    """Print how the records fared, and each kind of step, then the reasons of failures."""
    outcomes = checked.outcomes
    known = sum(outcome.known for outcome in outcomes)
    replayed = sum(outcome.replayed for outcome in outcomes)
    right = sum(outcome.right for outcome in outcomes)
    show(f"{len(outcomes)} records: {known} of a known compute, {replayed} replayed, {right} right")
    there, taken = Counter[str](), Counter[str]()
    records = Counter[str]()
    for outcome in outcomes:
        there.update(outcome.steps)
        records.update(outcome.steps.keys())
        if outcome.right:
            taken.update(outcome.steps)
    rows = [
        (kind, records[kind], count, taken[kind], count - taken[kind])
        for kind, count in sorted(there.items())
    ]
    show(table(("step", "records", "steps", "in right kernels", "not"), rows, numbers=4))
    reasons = Counter(outcome.reason for outcome in outcomes if not outcome.right)
    if reasons:
        first = {o.reason: o.source for o in reversed(outcomes)}
        failures = [(reason, count, first[reason]) for reason, count in reasons.most_common()]
        show(table(("reason", "records", "first"), failures))
    notes = Counter(note for outcome in outcomes for note in outcome.notes)
    if notes:
        show(table(("left out", "records"), list(notes.most_common())))
    if checked.failed_records:
        show(f"{checked.failed_records} records of failed measurements were passed over")
