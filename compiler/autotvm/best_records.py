"""Making small logs of large ones: the best records, or one file for each workload."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TextIO

from ..records.autotvm.record import MeasureInput, PathLike, encode, load_from_file
from ..records.autotvm.workload import digest
from ..records.log_file import append_lines
from ..records.log_target import UNKNOWN_MODEL, log_target
from ..records.measure_result import MeasureResult
from ..records.untrusted_json import mean_seconds
from ..support.atomic_file import replacing

Record = tuple[MeasureInput, MeasureResult]


def measure_str_key(inp: MeasureInput, include_config: bool = True) -> str:
    """Text that identifies what a record measured."""
    parts = [str(log_target(inp.target)), inp.task.name, str(inp.task.args)]
    return "".join([*parts, str(inp.config.to_entity())] if include_config else parts)


def best_records(records: Iterable[Record]) -> list[Record]:
    """Records that are the best of their workload for some target key or model, in order."""
    held: list[Record] = []
    best: dict[tuple[str, str, bytes], int] = {}
    for inp, result in records:
        if mean_of(result) == math.inf:
            continue
        target, workload = log_target(inp.target), digest(inp.task.workload)
        places = [("key", key, workload) for key in target.keys]
        if target.model != UNKNOWN_MODEL:
            places.append(("model", target.model, workload))
        cost = mean_of(result)
        beaten = [p for p in places if p not in best or cost < mean_of(held[best[p]][1])]
        if beaten:
            held.append((inp, result))
            best.update(dict.fromkeys(beaten, len(held) - 1))
    return [held[index] for index in sorted(set(best.values()))]


def mean_of(result: MeasureResult) -> float:
    """Seconds of a run; infinite for a failure."""
    return mean_seconds(result.costs, result.error_no)


def pick_best(in_file: PathLike, out_file: PathLike | TextIO) -> None:
    """Write the best records of a log.

    Parameters
    ----------
    in_file : path
    out_file : path or text file
        A path is overwritten; records that it has already compete.

    Raises
    ------
    RecordError
        `in_file` can't be read.
    """
    is_path = isinstance(out_file, (str, os.PathLike))
    records = list(load_from_file(in_file))
    if is_path and Path(out_file).exists() and Path(out_file).stat().st_size:  # type: ignore[arg-type]
        records += load_from_file(out_file)  # type: ignore[arg-type]
    lines = [encode(inp, result) for inp, result in best_records(records)]
    text = "".join(line + "\n" for line in lines)
    if is_path:
        with replacing(out_file) as file:  # type: ignore[arg-type]
            file.write(text.encode())
    else:
        out_file.write(text)  # type: ignore[union-attr]


def split_workload(in_file: PathLike, clean: bool = True) -> list[Path]:
    """Write one log per workload next to the log: NAME.001.wkl, NAME.002.wkl, ...

    Parameters
    ----------
    clean : bool
        Leave out failed measurements and configs that were measured already.

    Returns
    -------
    The files.
    """
    groups: dict[str, dict[str, Record]] = {}
    for count, (inp, result) in enumerate(load_from_file(in_file)):
        if clean and result.error_no != 0:
            continue
        group = groups.setdefault(measure_str_key(inp, include_config=False), {})
        key = measure_str_key(inp) if clean else str(count)
        group.setdefault(key, (inp, result))
    written = []
    for number, group in enumerate(groups.values(), 1):
        path = Path(f"{in_file}.{number:03d}.wkl")
        path.unlink(missing_ok=True)
        append_lines(path, (encode(inp, result) for inp, result in group.values()))
        written.append(path)
    return written


def main(words: Sequence[str] | None = None) -> None:
    """`python -m compiler.autotvm.best_records --mode read|pick|split --i FILE [--o FILE]`."""
    parser = argparse.ArgumentParser(description="Read, thin out or split an AutoTVM log.")
    parser.add_argument("--mode", choices=["read", "pick", "split"], default="read")
    parser.add_argument("--i", required=True, help="the log")
    parser.add_argument("--o", help="where --mode pick writes; FILE.best by default")
    options = parser.parse_args(words)
    if options.mode == "pick":
        pick_best(options.i, options.o or options.i + ".best")
    elif options.mode == "split":
        for path in split_workload(options.i):
            print(path)
    else:
        for inp, result in load_from_file(options.i):
            print(encode(inp, result))


if __name__ == "__main__":
    main()
