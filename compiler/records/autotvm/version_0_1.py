"""AutoTVM records of version 0.1, which TVM up to 0.6 wrote, as records of version 0.2.

    {"i": [target, task, args, {}, workload,
           {"i": index, "t": template key, "c": null, "e": [[knob, kind, value], ...]}],
     "r": [[seconds, ...], error number, seconds in all, Unix time], "v": 0.1}

The workload names the operator; its target and the template key say which task of version 0.2 took
over its templates. The rules are those by which the published TopHub logs were converted. A task
that a user defined keeps its name and arguments.
"""

from __future__ import annotations

import re
from typing import Any

from ...errors import RecordError
from ...support.text_tables import read_table
from ..log_target import log_target

_TASKS = {tuple(key.split()): task for key, task in read_table(__file__, "tasks_0_1.txt")}
# How many layouts the arguments of a task name, where there are any.
_LAYOUTS = {
    "conv2d_NCHWc.x86": 2,
    "conv2d_NCHWc_int8.x86": 2,
    "conv2d_NCHWc.intel_graphics": 2,
    "conv2d_NCHWc_int8.cuda": 1,
    "conv2d_packed.vta": 1,
    "depthwise_conv2d_NCHWc.x86": 2,
}
_SHARED_KEYS = ("cpu", "gpu")  # of several kinds of device: a device's own key goes first


def translate_version_0_1(row: dict[str, Any]) -> dict[str, Any]:
    """Convert a parsed 0.1 line to 0.2 as TopHub did; RecordError if malformed or taskless."""
    try:
        target, task, args, _, workload, config = row["i"]
        template = config["t"] or "direct"
        knobs = config["e"]
        entity = {"index": config["i"], "code_hash": config["c"], "entity": knobs}
        keys = sorted(log_target(target).keys, key=_SHARED_KEYS.__contains__)
        by_user = not config["t"] and (not workload or workload[0] == task)
        name, args = (task, args) if by_user else _successor(args, workload, keys, template, knobs)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise RecordError(f"version 0.1 record that lacks fields ({error!r})") from error
    if not name:
        raise RecordError(f"version 0.1 task {task!r} (template {template!r}) has no successor")
    return {"input": [target, name, args, {}], "config": entity, "result": row["r"], "version": 0.2}


def _successor(
    args: list[Any], workload: list[Any], keys: list[str], template: str, knobs: list[Any]
) -> tuple[str, list[Any]]:
    """Task of version 0.2 and its arguments; "" where there is none."""
    operator, data, kernel, *rest = workload
    tensors = [_tensor(data), _tensor(kernel)]
    layouts: list[str] = []
    if operator.startswith(("conv2d", "conv3d")) and "transpose" not in operator:
        layouts = [value for value in rest[:-1] if isinstance(value, str)]
    layout = re.match("[A-Z]*", layouts[0])[0] if layouts else ""  # type: ignore[index]
    if operator == "dense":
        template = _dense_template(template, keys, knobs)
    found = (_TASKS.get((operator, layout or "-", key, template)) for key in keys)
    name = next(filter(None, found), "")
    if operator == "dense":
        bias, out_dtype = [*rest, None, None][:2]
        return name, [*tensors, _tensor(bias) if bias else None, out_dtype or None]
    if operator == "batch_matmul":
        return name, tensors
    strides, padding, *rest = rest
    sides = _sides(padding, len(strides))
    if "transpose" in operator:
        beyond = rest[1:] or [value for value in args[5:6] if isinstance(value, list)]
        return name, [*tensors, strides, sides, rest[0], *beyond]
    dilation = rest.pop(0) if isinstance(rest[0], list) else [1] * len(strides)
    named = ((layouts or ["NCHW"]) * 2)[: _LAYOUTS.get(name, 0)]
    groups = [value for value in rest if isinstance(value, int)]
    return name, [*tensors, strides, sides, dilation, *named, *groups, rest[-1]]


def _dense_template(template: str, keys: list[str], knobs: list[Any]) -> str:
    """Template key of `dense` by its knobs: "direct" chose one of two by the rows of the data."""
    factors = {knob: len(value) for knob, _, value in knobs if isinstance(value, list)}
    if template == "direct" and "gpu" in keys and "mali" not in keys:
        return "large_batch" if "tile_x" in factors else "small_batch"
    if template == "direct" and "cpu" in keys and "vta" not in keys:
        return "direct_pack" if factors["tile_y"] == 3 else "direct_nopack"
    return template


def _tensor(operand: list[Any]) -> list[Any]:
    """[extent, ..., dtype] with the mark of a tensor."""
    *shape, dtype = operand
    return ["TENSOR", shape, dtype]


def _sides(padding: Any, rank: int) -> list[int]:
    """Padding of every side; 0.1 kept a symmetric one as one number for each axis, or one alone."""
    sides = [padding] * rank if isinstance(padding, int) else list(padding)
    return sides * 2 if len(sides) == rank else sides
