"""Which tasks `tvmc tune --tasks` tunes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import TVMCException

_WIDTH = 100


class TaskFilterError(TVMCException, AssertionError):
    """An expression that names no tasks; an AssertionError, as TVM's was."""


def filter_tasks(tasks: Sequence[Any], expr: str) -> tuple[list[Any], bool]:
    """The tasks of an expression, and whether it asks for their list.

    `expr`: of "all", "list", "help", numbers and ranges ("3", "1-5", "-5", "6-"), with commas.
    Raises TaskFilterError: a range is not one, or a number is not that of a task.
    """
    wanted: set[int] | None = None
    wants_list = wants_all = False
    for item in expr.split(","):
        if item in ("list", "help"):
            wants_list = True
        elif item == "all":
            wants_all = True
        else:
            wanted = (wanted or set()) | set(_numbers(item, len(tasks)))
    if wants_all or wanted is None:
        return list(tasks), wants_list
    return [task for number, task in enumerate(tasks) if number in wanted], wants_list


def _numbers(item: str, count: int) -> range:
    is_number = item.replace("-", "").isdigit() or set(item) == {"-"}
    _check(is_number, f"Malformed expression of tasks: {item!r}")
    if "-" not in item:
        number = int(item)
        _check(0 <= number < count, f"Task index out of range: {item} of {count} tasks")
        return range(number, number + 1)
    _check(item.count("-") == 1, f"Malformed range expression: {item}")
    first, _, last = item.partition("-")
    _check(bool(first or last), f"Missing lhs or rhs for range expression: {item}")
    begin, end = int(first or 0), int(last or count - 1)
    _check(0 <= begin < count, f"Left-hand side expression out of range: {item} of {count} tasks")
    _check(0 <= end < count, f"Right-hand side expression out of range: {item} of {count} tasks")
    return range(begin, end + 1)


def _check(is_right: bool, message: str) -> None:
    if not is_right:
        raise TaskFilterError(message)


def gen_task_list(tasks: Sequence[Any], enable_autoscheduler: bool) -> str:
    """The tasks with their numbers, one a line.

    `enable_autoscheduler`: whether they are auto_scheduler's.
    """
    lines = ["Available Tasks for tuning:"]
    for number, task in enumerate(tasks):
        text = (task.desc or "Unnamed") if enable_autoscheduler else str(task)
        if len(text) >= _WIDTH:
            text = text[: _WIDTH - 3] + "..."
        size = "" if enable_autoscheduler else f" (len={len(task.config_space)})"
        lines.append(f"  {number}. {text}{size}")
    return "\n".join(lines)
