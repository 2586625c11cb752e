"""`baton convert-log`: tuning logs of any age and form -> one log in the current form."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compiler.errors import RecordError

from .console import show, table
from .files import write_text


@dataclass
class Converted:
    """Outcomes of the lines of some logs."""

    # Records written, by (log, form they came in)
    written: Counter[tuple[str, str]] = field(default_factory=Counter)
    # Lines left out, by (log, reason)
    dropped: Counter[tuple[str, str]] = field(default_factory=Counter)
    # The first line number of each dropped (log, reason)
    first: dict[tuple[str, str], int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists and numbers."""
        return {
            "written": [[*key, count] for key, count in self.written.items()],
            "dropped": [[*key, count, self.first[key]] for key, count in self.dropped.items()],
        }


def convert_logs(
    logs: Sequence[Path], output: Path, only_best: bool = False, drop_failed: bool = False
) -> Converted:
    """Read AutoTVM logs in every form that TVM ever wrote and write version 0.2.

    `only_best`: keep the best record of each workload and target alone. `drop_failed`: leave out
    records of failed measurements.
    Raises RecordError: a log that can't be read.
    """
    from compiler.autotvm import encode
    from compiler.autotvm.best_records import best_records
    from compiler.records.autotvm.record import decode, read_lines

    done = Converted()
    kept = []
    for log in logs:
        for number, text in enumerate(read_lines(log, "AutoTVM log"), 1):
            bare = text.strip()
            if not bare or bare.startswith("#"):
                continue
            try:
                record = decode(bare)
            except RecordError as error:
                _drop(done, log.name, str(error), number)
                continue
            if drop_failed and record[1].error_no != 0:
                _drop(done, log.name, "failed measurement", number)
                continue
            kept.append((record, log.name, _form(bare), number))
    if only_best:
        best = {id(pair[0]) for pair in best_records(record for record, *_ in kept)}
        for record, name, _, number in kept:
            if id(record[0]) not in best:
                _drop(done, name, "not the best of its workload", number)
        kept = [each for each in kept if id(each[0][0]) in best]
    for _, name, form, _ in kept:
        done.written[name, form] += 1
    write_text(output, "".join(encode(*record) + "\n" for record, *_ in kept))
    return done


def convert_database(source: Path, output: Path) -> int:
    """Turn a MetaSchedule database folder into an auto_scheduler log, or a log into a folder.

    `source`: what is a folder becomes a log, what is a log becomes a folder. `output`: a log is
    appended to, and so is a folder. Returns the number of records written.
    Raises RecordError: the source can't be read.
    """
    from compiler.auto_scheduler import metaschedule
    from compiler.records.auto_scheduler.record import Record, load_records, save_records

    if source.is_dir():
        records = metaschedule.read_database(source)
        save_records(output, records)
        return len(records)
    own = [record for record in load_records(source) if isinstance(record, Record)]
    return metaschedule.write_database(output, own)


def _drop(done: Converted, name: str, reason: str, line: int) -> None:
    done.dropped[name, reason] += 1
    done.first.setdefault((name, reason), line)


def _form(line: str) -> str:
    row = json.loads(line)
    return f"version {row.get('version', row.get('v', 'unknown'))}"


def show_converted(converted: Converted, output: Path) -> None:
    """Print how many records were written, and what was dropped and why."""
    rows = [(*key, count) for key, count in converted.written.items()]
    show(table(("log", "form", "records"), rows, numbers=1))
    if converted.dropped:
        dropped = [(*key, converted.first[key], count) for key, count in converted.dropped.items()]
        show(table(("log", "dropped because", "first line", "lines"), dropped, numbers=2))
    show(f"{sum(converted.written.values())} records in {output}")
