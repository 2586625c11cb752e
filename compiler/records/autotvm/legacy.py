"""Old AutoTVM 0.2 spellings: renamed tasks and changed arguments, by TVM 0.7 to 0.18's history."""

from __future__ import annotations

from typing import Any

_RENAMED = {
    "dense_small_batch.cuda": "dense_small_batch.gpu",
    "dense_large_batch.cuda": "dense_large_batch.gpu",
    "conv2d_nhwc.cuda": "conv2d_nhwc.gpu",
}

_CHANGED_ARGUMENTS = frozenset(
    (
        "batch_matmul.x86",
        "batch_matmul.cuda",
        "conv2d_transpose_nchw.cuda",
        "conv1d_transpose_nchw.cuda",
        "conv3d_ncdhw.x86",
        "conv3d_ndhwc.x86",
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
    elif task in ("conv3d_ncdhw.x86", "conv3d_ndhwc.x86") and len(args) == 6:
        args = [*args[:5], 1, args[5]]  # there were no groups before TVM 0.9
    return task, args


def _batch_matmul_args(args: list[Any]) -> list[Any]:
    """(a, b[, out_shape]) of the time when b was always transposed."""
    (_, a_shape, dtype), (_, b_shape, _) = args[:2]
    out_shape = [max(a_shape[0], b_shape[0]), a_shape[1], b_shape[1]]
    filled = [*args, *[out_shape, dtype, 0, 1][len(args) - 2 :]]
    if filled[2] is None:
        filled[2] = out_shape
    return filled
