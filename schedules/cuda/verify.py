"""Checks that a scheduled CUDA function runs in threads and within the target's limits."""

from __future__ import annotations

import math
from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir.analysis import verify_gpu_code
from tvm.target import Target
from tvm.tirx.build import split_host_device_mods

from ..tir_visit import nodes_of
from . import limits as device_limits
from .limits import MAX_GRID_YZ, Limits

_CHILDREN = ("block", "init", "body", "then_case", "else_case")


def has_thread_bindings(func: tirx.PrimFunc) -> bool:
    """Whether all stores and calls are in loops bound to blocks or threads or `launch_thread`s."""
    return _inside_threads(func.body, False)


def _inside_threads(stmt: Any, bound: bool) -> bool:
    if isinstance(stmt, tirx.For) and stmt.kind == tirx.ForKind.THREAD_BINDING:
        bound = bound or not str(stmt.thread_binding.thread_tag).startswith("vthread")
    if isinstance(stmt, tirx.AttrStmt) and stmt.attr_key == "thread_extent":
        bound = True
    if isinstance(stmt, tirx.BufferStore):
        return bound
    if isinstance(stmt, tirx.Evaluate):
        return bound or not isinstance(stmt.value, tvm.ir.Call)
    if isinstance(stmt, tirx.SeqStmt):
        return all(_inside_threads(child, bound) for child in stmt.seq)
    children = (getattr(stmt, name, None) for name in _CHILDREN)
    return all(_inside_threads(child, bound) for child in children if child is not None)


def launches_in_loops(func: tirx.PrimFunc) -> bool:
    """Whether the host would launch a kernel from within a loop."""
    return _loop_around_threads(func.body, False)


def _loop_around_threads(stmt: Any, in_loop: bool) -> bool:
    if isinstance(stmt, tirx.For):
        if stmt.kind == tirx.ForKind.THREAD_BINDING:
            return in_loop
        in_loop = True
    if isinstance(stmt, tirx.SeqStmt):
        return any(_loop_around_threads(child, in_loop) for child in stmt.seq)
    children = (getattr(stmt, name, None) for name in _CHILDREN)
    return any(_loop_around_threads(child, in_loop) for child in children if child is not None)


def launches(func: tirx.PrimFunc) -> int:
    """How many kernels a scheduled function launches; those in a loop of the host count once."""
    return _launches(func.body)


def _launches(stmt: Any) -> int:
    is_kernel = isinstance(stmt, tirx.For) and stmt.kind == tirx.ForKind.THREAD_BINDING
    if is_kernel or (isinstance(stmt, tirx.AttrStmt) and stmt.attr_key == "thread_extent"):
        return 1
    children = [getattr(stmt, name, None) for name in _CHILDREN]
    children += list(stmt.seq) if isinstance(stmt, tirx.SeqStmt) else []
    return sum(_launches(child) for child in children if child is not None)


class LoweringError(Exception):
    """TVM's passes fail on a scheduled function."""


def violation(func: tirx.PrimFunc, target: Target) -> str | None:
    """`limit_violation`, with a failure of TVM's passes as one more reason."""
    try:
        return limit_violation(func, target)
    except LoweringError as error:
        return str(error)


def limit_violation(func: tirx.PrimFunc, target: Target) -> str | None:
    """Why the scheduled function does not fit the target; None if it does.

    The function is lowered as a build would lower it, so memory that the host would touch,
    thread extents that disagree and expressions that can't be lowered show up here.

    `func`: a scheduled function. `target`: a CUDA target; `limits.of` says what its architecture
    and its attributes allow. Raises LoweringError: TVM's passes fail on the function.
    """
    if not has_thread_bindings(func):
        return "it stores outside of any thread"
    module = tvm.IRModule({"kernel": func.with_attr("global_symbol", "kernel")})
    pipeline, _, _ = tirx.get_tir_pipeline("default")
    try:
        module = pipeline(tirx.transform.BindTarget(target)(module))
    except Exception as error:  # TVM's passes raise what they like on what they can't lower
        last = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        raise LoweringError(f"it can't be lowered: {last}") from error
    _, device_modules = split_host_device_mods(module)
    for device_module in device_modules.values():
        for kernel in device_module.functions.values():
            reason = _limit_violation(kernel, device_limits.of(target))
            if reason is not None:
                return reason
    return None


def _limit_violation(kernel: tirx.PrimFunc, limits: Limits) -> str | None:
    host_call = _host_call(kernel)
    if host_call is not None:
        return f"it calls {host_call}, which only a host has"
    for buffer in (each.buffer for each in nodes_of(kernel.body, tirx.AllocBuffer)):
        is_known = all(isinstance(extent, tirx.IntImm) for extent in buffer.shape)
        if not is_known and buffer.scope() != "global":  # which callers allocate
            return f"the size of its array {buffer.name} is only known at run time"
    extents = _launch_extents(kernel)
    # Where an extent is only known at launch, the kernel keeps within the limit: TVM's own scans.
    threads = math.prod(extent or 1 for tag, extent in extents if tag.startswith("threadIdx"))
    if threads > limits.threads_per_block:
        return f"its {threads} threads per block exceed {limits.threads_per_block}"
    reason = _shared_violation(kernel, limits)
    if reason is not None:
        return reason
    is_known = all(extent is not None for _, extent in extents)
    if is_known and not verify_gpu_code(
        kernel, {"max_threads_per_block": limits.threads_per_block}
    ):
        return "TVM's check of GPU code refuses it: its stages disagree in their threads"
    for tag, extent in extents:
        if tag in ("blockIdx.y", "blockIdx.z") and extent is not None and extent > MAX_GRID_YZ:
            return f"its {tag} of {extent} exceeds {MAX_GRID_YZ}"
    return None


def _shared_violation(kernel: tirx.PrimFunc, limits: Limits) -> str | None:
    """Describe how a kernel exceeds the shared memory limits of a block; None if it does not."""
    static, dynamic = (_shared_bytes(kernel, scope) for scope in ("shared", "shared.dyn"))
    if static > limits.static_shared:
        return f"its {static} bytes of static shared memory exceed {limits.static_shared}"
    # TVM's runtime asks for more than the static limit where the dynamic part alone exceeds it.
    is_asked_for = dynamic >= limits.static_shared
    allowed = limits.shared_per_block if is_asked_for else limits.static_shared
    if static + dynamic > allowed:
        return f"its {static + dynamic} bytes of shared memory exceed {allowed}"
    return None


def _shared_bytes(kernel: tirx.PrimFunc, scope: str) -> int:
    """Bytes that the kernel's buffers of this scope take."""
    buffers = (allocation.buffer for allocation in nodes_of(kernel.body, tirx.AllocBuffer))
    total = 0
    for buffer in (each for each in buffers if each.scope() == scope):
        bits = tvm.DataType(str(buffer.dtype))
        total += math.prod(map(int, buffer.shape)) * bits.bits * bits.lanes // 8
    return total


def _host_call(kernel: tirx.PrimFunc) -> str | None:
    for call in nodes_of(kernel.body, tvm.ir.Call, "pre"):
        if "packed" in str(getattr(call.op, "name", "")):
            return str(getattr(call.args[0], "value", call.op.name))
    return None


def _launch_extents(kernel: tirx.PrimFunc) -> list[tuple[str, int | None]]:
    return [
        (
            str(each.node.thread_tag),
            int(each.value) if isinstance(each.value, tirx.IntImm) else None,
        )
        for each in nodes_of(kernel.body, tirx.AttrStmt, "pre")
        if each.attr_key == "thread_extent"
    ]
