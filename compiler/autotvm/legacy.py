"""Old spellings of AutoTVM records: version 0.1 lines, renamed tasks, changed argument lists.

Sources of the rules: the history of TVM's templates from 0.6 to 0.18, and the way in which the
published TopHub logs were converted from version 0.1 to 0.2.
"""

from __future__ import annotations

from typing import Any

from ..errors import RecordError
from .log_target import log_target

_RENAMED = {
    "dense_small_batch.cuda": "dense_small_batch.gpu",
    "dense_large_batch.cuda": "dense_large_batch.gpu",
    "conv2d_nhwc.cuda": "conv2d_nhwc.gpu",
}

# (operator of the 0.1 workload, target key, template key) -> task name of version 0.2
_TASKS_OF_0_1 = {
    ("conv2d", "arm_cpu", "direct"): "conv2d_nchw_spatial_pack.arm_cpu",
    ("conv2d", "arm_cpu", "winograd"): "conv2d_nchw_winograd.arm_cpu",
    ("conv2d", "cpu", "direct"): "conv2d_NCHWc.x86",
    ("conv2d", "cuda", "direct"): "conv2d_nchw.cuda",
    ("conv2d", "cuda", "winograd"): "conv2d_nchw_winograd.cuda",
    ("depthwise_conv2d_nchw", "arm_cpu", "direct"): "depthwise_conv2d_nchw.arm_cpu",
    ("depthwise_conv2d_nchw", "cuda", "direct"): "depthwise_conv2d_nchw.cuda",
    ("dense", "cpu", "direct_nopack"): "dense_nopack.x86",
    ("dense", "cpu", "direct_pack"): "dense_pack.x86",
}


_CHANGED_ARGUMENTS = frozenset(
    (
        "batch_matmul.x86",
        "batch_matmul.cuda",
        "conv2d_transpose_nchw.cuda",
        "conv1d_transpose_nchw.cuda",
    )
)


def changes_spelling(task: str) -> bool:
    """Whether `current_spelling` may give a task another name or other arguments."""
    return task in _RENAMED or task in _CHANGED_ARGUMENTS


def current_spelling(task: str, args: list[Any]) -> tuple[str, list[Any]]:
    """Give a 0.2 task of any age the name and the arguments that TVM 0.18 gave it."""
    task = _RENAMED.get(task, task)
    if task in ("batch_matmul.x86", "batch_matmul.cuda") and len(args) < 6:
        args = _batch_matmul_args(args)
    elif task == "conv2d_transpose_nchw.cuda" and 5 <= len(args) < 7:
        args = [*args, *[[0, 0], 1][len(args) - 5 :]]  # output_padding, groups
    elif task == "conv1d_transpose_nchw.cuda" and len(args) > 3 and len(args[3]) == 1:
        args = [*args[:3], args[3] * 2, *args[4:]]  # Relay kept the padding as the model said it
    return task, args


def _batch_matmul_args(args: list[Any]) -> list[Any]:
    """(a, b[, out_shape]) of the time when b was always transposed."""
    (_, a_shape, dtype), (_, b_shape, _) = args[:2]
    out_shape = [max(a_shape[0], b_shape[0]), a_shape[1], b_shape[1]]
    filled = [*args, *[out_shape, dtype, 0, 1][len(args) - 2 :]]
    if filled[2] is None:
        filled[2] = out_shape
    return filled


def translate_version_0_1(row: dict[str, Any]) -> dict[str, Any]:
    """Turn a parsed 0.1 line into the parsed 0.2 line that TopHub's conversion would give.

    Raises
    ------
    RecordError
        The line is not laid out as 0.1 lines are, or its task has no counterpart.
    """
    try:
        target, task, _, _, workload, config = row["i"]
        operator, data, kernel, *rest = workload
        template = config["t"]
        entity = {"index": config["i"], "code_hash": config["c"], "entity": config["e"]}
        keys = log_target(target).keys
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"version 0.1 record that lacks fields ({error!r})") from error
    found = [_TASKS_OF_0_1[key] for key in [(operator, k, template) for k in keys]
             if key in _TASKS_OF_0_1]  # fmt: skip
    if not found:
        raise RecordError(f"version 0.1 task {task!r} (template {template!r}) has no successor")
    tensors = [["TENSOR", list(operand[:-1]), operand[-1]] for operand in (data, kernel)]
    args = _args_of_0_1(found[0], rest)
    return {
        "input": [target, found[0], [*tensors, *args], {}],
        "config": entity,
        "result": row["r"],
        "version": 0.2,
    }


def _args_of_0_1(task: str, rest: list[Any]) -> list[Any]:
    """Arguments after the two tensors; 0.1 kept a symmetric padding as (height, width)."""
    try:
        if task.startswith("dense"):
            bias, out_dtype = rest
            return [bias, out_dtype]
        if task.startswith("depthwise"):
            strides, padding, dilation, out_dtype = rest
            return [strides, _four_sides(padding), dilation, out_dtype]
        strides, padding, dilation, layout, out_dtype = rest
    except ValueError as error:
        raise RecordError(f"version 0.1 workload of {task} with arguments {rest}") from error
    layouts = [layout, layout] if task == "conv2d_NCHWc.x86" else []
    return [strides, _four_sides(padding), dilation, *layouts, out_dtype]


def _four_sides(padding: Any) -> list[int]:
    sides = [padding, padding] if isinstance(padding, int) else list(padding)
    return sides * 2 if len(sides) == 2 else sides
