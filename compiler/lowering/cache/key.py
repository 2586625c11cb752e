"""Cache key of a build, or the reason why the build cannot be cached.

The key covers the module with the bytes of its constants, target, pass context, tuning records,
this machine's CPU, and the code of TVM, LLVM and Baton. Code that the caller supplies can't be
hashed: pass instruments, external codegen backends, schedules registered outside Baton.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import GenericConst
from tvm.target import Target

from schedules import rules, strategy
from schedules.x86.machine.cpu import Machine

from ...backends import COMPILE_OPTIONS
from ...support.source_fingerprint import MODULES, code_version, module_of
from ..codegen.compile_kernels import compiler_state
from ..codegen.device_placement import device_kind
from ..codegen.lift_constants import bytes_of
from ..offloaded_functions import function_targets
from ..selection.schedule_source import ScheduleSource

_OWN_PACKAGES = ("compiler", "schedules", "tvm")
_KINDS = (("llvm", "cpu"), ("cuda", "cuda"))
"""Kinds of targets and devices whose libraries are kept."""
_PLAIN = (bool, int, float, str, type(None))


def obstacle(mod: tvm.IRModule, target: Target, source: ScheduleSource) -> str:
    """Why a build can't be keyed; "" if it can. No backend has compiled functions of `mod` yet."""
    context = tvm.transform.PassContext.current()
    if context.instruments:
        return "a pass instrument is active"
    if not all(_is_plain(value) for value in context.config.values()):
        return "the pass context's config holds more than numbers and strings"
    if any(f.attrs and COMPILE_OPTIONS in f.attrs for _, f in mod.functions_items()):
        return "a backend compiles subgraphs by itself"
    targets = function_targets(mod, target).values()
    if any((each.kind.name, device_kind(each)) not in _KINDS for each in targets):
        return "kernels are for other devices than CPUs and NVIDIA's GPUs"
    if source.content_digest() is None:
        return "what the active dispatch contexts know can't be compared"
    foreign = sorted({module for module in _registered() if not _is_own(module)})
    return f"{', '.join(foreign)} registered schedules or operators" if foreign else ""


def library_key(
    mod: tvm.IRModule, target: Target, source: ScheduleSource, others: Sequence[object]
) -> str:
    """Hash of everything that decides a library, as hexadecimal digits.

    The parameters of `mod` are bound; `target` is that of `main`. `others`: what else the caller
    decides; their `repr` counts.
    """
    constants: list[Any] = []

    def placeholder(constant: Any) -> Any:
        constants.append(constant.value)
        return relax.Var(f"constant{len(constants)}", constant.ty)

    functions = {
        gvar: tvm_ffi.structural_map(function, (GenericConst, placeholder))
        for gvar, function in mod.functions_items()
    }
    structure = tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
    digest = hashlib.sha256()
    for part in (
        f"baton {code_version()}",
        *compiler_state(),
        f"target {target} {_machines(mod, target)}",
        f"records {source.content_digest()}",
        repr(others),
        tvm.ir.save_json(structure),
    ):
        digest.update(part.encode() + b"\0")
    for each in _digests(constants):
        digest.update(each)
    return digest.hexdigest()


def _machines(mod: tvm.IRModule, target: Target) -> list[object]:
    """Machine description of each function's target; the target itself for a GPU."""
    targets = function_targets(mod, target).values()
    return [Machine.from_target(t) if t.kind.name == "llvm" else str(t) for t in targets]


def _digests(constants: Sequence[Any]) -> list[bytes]:
    """Hash each tensor; hashing a large one releases the GIL."""

    def digest(tensor: Any) -> bytes:
        header = f"{tensor.dtype} {tuple(tensor.shape)}".encode()
        content = hashlib.sha256(bytes_of(tensor).data).digest()
        return hashlib.sha256(header + b"\0" + content).digest()

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(digest, constants))


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple, tvm.ir.Array)):
        return all(_is_plain(item) for item in value)
    if isinstance(value, (dict, tvm.ir.Map)):
        return all(_is_plain(item) for pair in value.items() for item in pair)
    return isinstance(value, (*_PLAIN, tvm.tirx.IntImm, tvm.tirx.FloatImm))


def _registered() -> list[str]:
    """Modules of all schedules and TE computes that a build may use."""
    implementations = [each for known in strategy.all_registered() for each in known]
    functions = [
        function
        for each in implementations
        for function in (each.supports, each.fallback, each.compute, each.task_args, each.pack)
    ]
    made = [type(rule) for rule in rules.ANCHOR_RULES.values()]
    modules = [module_of(each) for each in (*functions, *made) if each]
    return modules + list(MODULES.values())


def _is_own(module: str) -> bool:
    return module.partition(".")[0] in _OWN_PACKAGES
