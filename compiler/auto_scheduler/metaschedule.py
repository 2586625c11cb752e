"""MetaSchedule's database folders, read as records and written from them.

A folder holds `database_workload.json` (one line per workload: hash and module) and
`database_tuning_record.json` (one line per measured schedule: the workload's number, its trace, its
times, target and arguments), as TVM's `JSONDatabase` keeps them.
"""

from __future__ import annotations

import base64
import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from types import NoneType
from typing import Any

from ..errors import RecordError
from ..records.auto_scheduler.record import Record
from ..records.auto_scheduler.trace_check import check_trace
from ..records.auto_scheduler.workload import ENTRY, canonical, workload_key
from ..records.untrusted_json import as_record_errors, read_json
from ..tvm_workarounds.validate_json import check_document, check_no_code

WORKLOADS, RECORDS = "database_workload.json", "database_tuning_record.json"


def is_database(path: str | os.PathLike) -> bool:
    """Whether a path is such a folder."""
    return (Path(path) / WORKLOADS).is_file() and (Path(path) / RECORDS).is_file()


def read_database(folder: str | os.PathLike) -> list[Record]:
    """Records of a database folder, failed ones included; traces are replayed under Baton's names.

    Raises RecordError: it is no such folder, or TVM can't read it.
    """
    from tvm.s_tir import meta_schedule as ms

    if not is_database(folder):
        raise RecordError(f"{os.fspath(folder)} has no {WORKLOADS} and {RECORDS}")
    _check_lines(Path(folder))
    try:
        database = ms.database.JSONDatabase(
            str(Path(folder) / WORKLOADS), str(Path(folder) / RECORDS), allow_missing=False
        )
        found = list(database.get_all_tuning_records())
    except Exception as error:  # TVM's reader raises what it likes on damaged lines
        reason = str(error).strip().splitlines()[-1:] or [type(error).__name__]
        raise RecordError(f"{os.fspath(folder)}: TVM can't read it: {reason[0]}") from error
    return records_of(found, os.fspath(folder))


def records_of(found: Iterable[Any], source: str) -> list[Record]:
    """Records of a database's entries; `source` names the database in errors.

    Raises RecordError: a workload is not one TIR function, or a record names no target.
    """
    import tvm

    records = []
    for index, each in enumerate(found):
        funcs = [func for _, func in each.workload.mod.functions_items()]
        if len(funcs) != 1 or not isinstance(funcs[0], tvm.tirx.PrimFunc):
            raise RecordError(f"{source}: workload {index} is not one TIR function")
        if each.target is None:
            raise RecordError(f"{source}: record {index} does not say its target")
        records.append(_record(each, funcs[0], index))
    return records


def _check_lines(folder: Path) -> None:
    """Refuse lines that are not what TVM's reader takes for granted: it crashes at them."""
    for name, check in ((WORKLOADS, _check_workload), (RECORDS, _check_record)):
        for number, line in enumerate((folder / name).read_bytes().splitlines(), 1):
            try:
                as_record_errors(lambda text, check=check: check(read_json(text.decode())))(line)
            except RecordError as error:
                raise RecordError(f"{folder / name}:{number}: {error}") from error


def _check_workload(row: Any) -> None:
    digest, module = row
    if not isinstance(row, list) or not isinstance(digest, str) or not isinstance(module, str):
        raise TypeError("it is not a hash and a module")
    text = base64.b64decode(module, validate=True)[8:]  # after the length
    document = json.loads(text)
    if "b64ndarrays" in document:  # the format up to TVM 0.20
        version = document.get("attrs", {}).get("tvm_version", "of an older version")
        raise RecordError(f"today's TVM can't read modules that TVM {version} wrote; tune again")
    check_document(document)
    check_no_code(document, kernels=True)


def _check_record(row: Any) -> None:
    workload, (trace, seconds, target, args) = row
    if type(workload) is not int or not isinstance(row[1], list):
        raise TypeError("it is not the number of a workload and a schedule")
    check_trace(trace)
    if seconds is not None and not all(type(each) in (int, float) for each in seconds):
        raise TypeError("times are not numbers")
    if not isinstance(target, (dict, NoneType)) or not isinstance(seconds, (list, NoneType)):
        raise TypeError("target or times are of another type")
    for kind, dtype, shape in args or ():
        if not isinstance(kind, str) or not isinstance(dtype, str) or not isinstance(shape, list):
            raise TypeError("an argument is not described as a tensor")
        if not all(type(extent) is int for extent in shape):
            raise TypeError("an extent is not an integer")


def _record(each: Any, func: Any, index: int) -> Record:
    from .search.engine import logged_target

    costs = tuple(float(seconds) for seconds in each.run_secs or ())
    names = _block_names(func)
    trace = json.loads(json.dumps(each.trace.as_json(), default=lambda number: number.value))
    return Record(
        workload_key(func),
        logged_target(each.target),
        _renamed(trace, names),
        costs,
        0 if costs else 8,
        source=f"auto_scheduler:<database>:{index + 1}",
    ).with_tir(canonical(func))


def _block_names(func: Any) -> dict[str, str]:
    """Name of each block, and the name that it has in the canonical function."""
    from tvm.s_tir import SBlock

    from schedules.tir_visit import nodes_of

    def names(body: Any) -> list[str]:
        found = (str(block.name_hint) for block in nodes_of(body, SBlock))
        return [name for name in found if name != "root"]

    return dict(zip(names(func.body), names(canonical(func).body), strict=True))


def _renamed(trace: list[Any], names: dict[str, str]) -> list[Any]:
    """The trace with the blocks that it gets by name under their canonical names."""
    instructions, decisions = trace
    renamed = []
    for name, inputs, attrs, outputs in instructions:
        if name == "GetSBlock" and attrs and attrs[0] in names:
            attrs = [names[attrs[0]], ENTRY, *attrs[2:]]
        renamed.append([name, inputs, attrs, outputs])
    return [renamed, decisions]


def write_database(folder: str | os.PathLike, records: Iterable[Record]) -> int:
    """Add records to a database folder, which is made if missing.

    Returns how many were written: those that hold a schedule, and whose log has the unscheduled
    function. Raises RecordError: a record's trace does not fit its function.
    """
    from tvm.s_tir import meta_schedule as ms

    Path(folder).mkdir(parents=True, exist_ok=True)
    database = ms.database.JSONDatabase(
        str(Path(folder) / WORKLOADS), str(Path(folder) / RECORDS), allow_missing=True
    )
    return commit_records(database, records)


def commit_records(database: Any, records: Iterable[Record]) -> int:
    """Add records to a database of MetaSchedule's; see `write_database`."""
    import tvm
    from tvm.s_tir import meta_schedule as ms

    functions: dict[str, Any] = {}
    written = 0
    for record in records:
        if record.tir is not None:
            functions[record.workload_key] = canonical(record.unscheduled())
        func = functions.get(record.workload_key)
        if func is None or not record.has_trace or record.cost == math.inf:
            continue
        mod = tvm.IRModule({ENTRY: func})
        target = tvm.target.Target(record.target)
        try:
            schedule = record.schedule_of(mod, target)
        except Exception as error:
            raise RecordError(f"{record.source}: its trace does not apply: {error}") from error
        workload = database.commit_workload(mod)
        args = ms.arg_info.ArgInfo.from_entry_func(mod)
        database.commit_tuning_record(
            ms.database.TuningRecord(schedule.trace, workload, list(record.costs), target, args)
        )
        written += 1
    return written
