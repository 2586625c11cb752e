#!/usr/bin/env python3
"""Put the records that tuning kept into the logs that Baton ships, and say how they were made.

    scripts/dev/ship_logs.py tuned/*.log.best --command "tune_models.py models/*.onnx ..."

The records go to `tuning_logs/<cpu>.log`, one file for each CPU that they name with `-mcpu`. Of one
operator and shape the fastest new record stays; a new one takes the place of an old one. With
`--measure` each is first measured again on this machine, in turn with what a build does without it,
and left out unless it is clearly faster.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import pathlib
import statistics
import sys
from collections.abc import Iterable, Sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from compiler.errors import BatonError, RecordError  # noqa: E402
from compiler.records.autotvm.record import (  # noqa: E402
    MeasureInput,
    MeasureResult,
    encode,
    load_from_file,
    read_lines,
)
from compiler.records.autotvm.workload import digest  # noqa: E402
from compiler.records.log_target import log_target  # noqa: E402
from compiler.records.untrusted_json import mean_seconds  # noqa: E402

Record = tuple[MeasureInput, MeasureResult]

_DIGITS = 4  # significant ones of a time; more say nothing
_BEST = ".best"


def cpu_of(inp: MeasureInput) -> str:
    """The CPU of a record.

    Raises
    ------
    RecordError
        Its target names none.
    """
    cpu = log_target(inp.target).cpu
    if not cpu:
        raise RecordError(
            f"{inp.config.source}: the target {inp.target} names no CPU with -mcpu, or changes its "
            "features; records like that can't be shipped"
        )
    return cpu


def fastest(records: Iterable[Record]) -> dict[bytes, Record]:
    """The fastest successful record of each workload, by its digest."""
    best: dict[bytes, Record] = {}
    for inp, result in records:
        key = digest(inp.task.workload)
        if _mean(result) < math.inf and (key not in best or _mean(result) < _mean(best[key][1])):
            best[key] = inp, result
    return best


def _mean(result: MeasureResult) -> float:
    return mean_seconds(result.costs, result.error_no)


def lean_line(inp: MeasureInput, result: MeasureResult) -> str:
    """One record as a line, its times cut down to their mean."""
    seconds = float(f"{_mean(result):.{_DIGITS}g}")
    return encode(inp, MeasureResult((seconds,), 0, 0.0, int(result.timestamp)))


def still_wins(inp: MeasureInput) -> bool:
    """Whether the record's operator is clearly faster with it, measured now."""
    from compiler.autotvm.confirm import LEAST_GAIN
    from compiler.records.autotvm import log_benchmark

    found = log_benchmark.measured(inp.target, inp.task.workload, inp.config)
    wins = found is not None and found.logged_seconds < found.own_seconds * (1 - LEAST_GAIN)
    print(f"{'stays' if wins else 'left out'}: {inp.task.name} {inp.config.source} {found}")
    return wins


def origin(log: pathlib.Path, kept: Sequence[Record]) -> str:
    """Where the records of one log come from: days, trials, and what they gained."""
    whole = log.with_name(log.name.removesuffix(_BEST))
    days = sorted({_day(result) for _, result in kept})
    text = f"{log.name}: {len(kept)} records, {' to '.join(dict.fromkeys((days[0], days[-1])))}"
    if whole != log and whole.is_file():
        measured = [line for line in read_lines(whole, "tuning log") if line.strip()]
        text += f", of {len(measured)} trials"
    result = whole.with_name(f"{whole.name.removesuffix('.log')}.result.json")
    if result.is_file():
        found = json.loads(result.read_text())
        if found.get("milliseconds"):
            after = statistics.median(found["milliseconds"])
            before = statistics.median(found["milliseconds_without"])
            text += f"; the network took {before:.3f} ms without them, {after:.3f} ms with them"
    return text


def _day(result: MeasureResult) -> str:
    moment = datetime.datetime.fromtimestamp(result.timestamp, datetime.timezone.utc)
    return moment.date().isoformat()


def this_cpu() -> tuple[str, str]:
    """LLVM's name of this machine's CPU, and the maker's."""
    from tvm.target import codegen

    text = pathlib.Path("/proc/cpuinfo").read_text()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line]
    return str(codegen.llvm_get_system_cpu()), names[0] if names else "unknown"


def versions() -> str:
    """What tuned and measured."""
    import tvm
    from tvm.target import codegen

    from compiler import __version__

    return f"Baton {__version__}, TVM {tvm.__version__}, LLVM {codegen.llvm_version_major()}"


def head_of(path: pathlib.Path) -> list[str]:
    """What the comments of a shipped log say, without their marks."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return [line.removeprefix("#").strip() for line in lines if line.startswith("#")]


def ship(
    logs: Sequence[pathlib.Path],
    folder: pathlib.Path,
    command: str,
    machine: str | None = None,
    measure: bool = False,
) -> dict[pathlib.Path, int]:
    """Write the shipped logs.

    Parameters
    ----------
    logs
        AutoTVM logs of the records that paid, as `baton tune` leaves them in `LOG.best`.
    folder
        Of the shipped logs.
    command : str
        That tuned.
    machine : str, optional
        The maker's name of the CPU that was measured; needed if it is not this one.
    measure : bool
        Leave out what is not clearly faster here and now.

    Returns
    -------
    Number of records in each file that was written.

    Raises
    ------
    RecordError
        A log can't be read, a record's target names no CPU, or a CPU has no maker's name.
    """
    given = {log: list(load_from_file(log, strict=True)) for log in logs}
    own_cpu, own_machine = this_cpu()
    by_cpu: dict[str, list[Record]] = {}
    for records in given.values():
        for record in records:
            by_cpu.setdefault(cpu_of(record[0]), []).append(record)
    written = {}
    for cpu, records in by_cpu.items():
        if machine is None and cpu != own_cpu:
            raise RecordError(f"records are of {cpu}, this machine is {own_cpu}: give --machine")
        new = fastest(records)
        if measure:
            new = {key: record for key, record in new.items() if still_wins(record[0])}
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{cpu}.log"
        old = fastest(load_from_file(path, strict=True)) if path.is_file() else {}
        lines = sorted(lean_line(*record) for record in {**old, **new}.values())
        head = [f"{cpu}: {machine or own_machine}; {versions()}", f"tuned by: {command}"]
        shipped = {id(inp) for inp, _ in new.values()}
        for log, found in given.items():
            kept = [record for record in found if id(record[0]) in shipped]
            head += [origin(log, kept)] if kept else []
        head = [*head_of(path), *(line for line in head if line not in head_of(path))]
        path.write_text("".join(f"# {line}\n" for line in head) + "".join(f"{x}\n" for x in lines))
        written[path] = len(lines)
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("logs", nargs="+", type=pathlib.Path)
    parser.add_argument("--command", required=True, help="that tuned; it is written into the file")
    parser.add_argument("--machine", help="the maker's name of the CPU; this one's by default")
    parser.add_argument("--measure", action="store_true", help="drop what is not faster here")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "tuning_logs")
    args = parser.parse_args()
    try:
        written = ship(args.logs, args.folder, args.command, args.machine, args.measure)
    except BatonError as error:
        sys.exit(str(error))
    for path, count in written.items():
        print(f"{path}: {count} records, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
