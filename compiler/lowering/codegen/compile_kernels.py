"""Compile CPU kernels to object code separately: from the kernel cache or in parallel.

    scheduled kernel --hash--> in the cache? --yes--------------------------------> object code
                                    |no                                                  ^
                                    +--> TIR passes (sequential) -------------> LLVM (threads)

The object code of all kernels goes into the executable as static libraries; the linker puts
them into the exported library, or into the one that is loaded to run in memory.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm.support import cc
from tvm.target import Target
from tvm.tirx.build import codegen_build

from ...errors import BuildError
from ...support.progress import report_progress
from ...support.source_fingerprint import code_version
from ...support.tempdir import TemporaryFolder
from ..cache.kernel_cache import KernelCache
from ..graph_passes.kernel_error import gives_up
from ..kernel_passes.pipeline import PIPELINE
from .device_placement import device_kind, target_of

_MARKER = "baton_target"


def has_linker() -> bool:
    """Whether this machine can link object code: TVM finds a C++ compiler."""
    return cc.get_cc() is not None


@dataclass(frozen=True)
class CompiledKernels:
    """Object code of a module's CPU kernels, by symbol."""

    code: dict[str, bytes]
    keys: dict[str, str]  # cache key of each kernel
    found: int  # number of kernels that came from the cache
    problem: str = ""  # why the cache did not store the others; "" if it did


def compile_cpu_kernels(
    mod: tvm.IRModule, target: Target, cache: KernelCache
) -> tuple[tvm.IRModule, CompiledKernels]:
    """Take the CPU kernels out of a module and compile them.

    `mod`: lowered Relax functions and scheduled kernels, with their global symbols. `target`:
    target of kernels without the attribute `target`; current in this thread. Returns the module
    without its CPU kernels, for `with_object_code`, and the compiled kernels.
    """
    kernels = {
        gvar: func
        for gvar, func in mod.functions_items()
        if isinstance(func, tvm.tirx.PrimFunc) and _is_cpu(target_of(func, target))
    }
    if not kernels:
        return mod, CompiledKernels({}, {}, 0)
    compiled = _objects(list(kernels.values()), target, cache)
    cache.trim_at_times()
    host = target if _is_cpu(target) else target.host
    kept = {gvar: func for gvar, func in mod.functions_items() if gvar not in kernels}
    if not any(isinstance(func, tvm.tirx.PrimFunc) for func in kept.values()):
        kept[tvm.ir.GlobalVar(_MARKER)] = _target_marker(host)
    return tvm.IRModule(kept, attrs=mod.attrs, global_infos=mod.global_infos), compiled


def separate_raising_kernels(mod: tvm.IRModule, target: Target) -> tvm.IRModule:
    """Compile each CPU kernel that can report an error into a separate module.

    In one module, TVM declares the error function once per kernel, under new, undefined names.
    """
    raising = {
        gvar: func
        for gvar, func in mod.functions_items()
        if isinstance(func, tvm.tirx.PrimFunc)
        and _is_cpu(target_of(func, target))
        and gives_up(func)
    }
    modules = []
    for func in raising.values():
        own = target_of(func, target)
        modules.append(codegen_build(_lower(func, str(func.attrs["global_symbol"]), own), own))
    kept = {gvar: func for gvar, func in mod.functions_items() if gvar not in raising}
    mod = tvm.IRModule(kept, attrs=mod.attrs, global_infos=mod.global_infos)
    return with_modules(mod, modules)


def with_object_code(mod: tvm.IRModule, code: Mapping[str, bytes]) -> tvm.IRModule:
    """Attach object code by symbol to the module, in its attribute `external_mods`."""
    return with_modules(mod, _static_libraries(code))


def with_modules(mod: tvm.IRModule, modules: list[Any]) -> tvm.IRModule:
    """Attach modules that the executable will import."""
    if not modules:
        return mod
    before = dict(mod.attrs or {}).get("external_mods", [])
    return mod.with_attr("external_mods", [*before, *modules])


def has_cpu_kernels(mod: tvm.IRModule, target: Target) -> bool:
    """Whether a module still has CPU kernels, which `compile_cpu_kernels` should have removed."""
    return any(
        isinstance(func, tvm.tirx.PrimFunc)
        and gvar.name_hint != _MARKER
        and _is_cpu(target_of(func, target))
        for gvar, func in mod.functions_items()
    )


def llvm_ir(func: tvm.tirx.PrimFunc, target: Target) -> str:
    """LLVM IR of a scheduled CPU kernel; "" for a kernel of another device."""
    own = target_of(func, target)
    if not _is_cpu(own):
        return ""
    module = codegen_build(_lower(func, str(func.attrs["global_symbol"]), own), own)
    return str(module.inspect_source("ll"))


def compiler_state() -> list[str]:
    """Everything but the source that decides object code: TVM, LLVM, the pass context."""
    context = tvm.transform.PassContext.current()
    return [
        f"tvm {tvm.__version__} ffi {tvm_ffi.__version__}",
        f"llvm {tvm.target.codegen.llvm_version_major(allow_none=True)}",
        f"opt_level {context.opt_level} disabled {sorted(map(str, context.disabled_pass))}",
        f"required {sorted(map(str, context.required_pass))}",
        f"config {sorted((str(name), str(value)) for name, value in context.config.items())}",
    ]


def kernel_key(func: tvm.tirx.PrimFunc, target: Target) -> str:
    """Hash of everything that decides a kernel's object code, as hexadecimal digits.

    That is the scheduled function with its symbol and attribute `target`, the default target, the
    pass context, the versions of TVM and LLVM, and Baton's code.
    """
    digest = hashlib.sha256()
    for part in (
        f"baton {code_version()}",
        *compiler_state(),
        f"target {target}",
        tvm.ir.save_json(func),
    ):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()


def _objects(
    kernels: list[tvm.tirx.PrimFunc], target: Target, cache: KernelCache
) -> CompiledKernels:
    found: dict[str, bytes] = {}
    keys: dict[str, str] = {}
    missing: dict[str, tuple[str, tvm.tirx.PrimFunc]] = {}
    for func in kernels:
        symbol, key = str(func.attrs["global_symbol"]), kernel_key(func, target)
        keys[symbol] = key
        code = cache.get(key)
        if code is None:
            missing[symbol] = (key, func)
        else:
            found[symbol] = code
    for symbol, code in _compile_all(missing, target).items():
        cache.put(missing[symbol][0], code)
        found[symbol] = code
    in_order = {symbol: found[symbol] for symbol in sorted(found)}
    return CompiledKernels(in_order, keys, len(kernels) - len(missing), cache.problem)


def _compile_all(
    kernels: Mapping[str, tuple[str, tvm.tirx.PrimFunc]], target: Target
) -> dict[str, bytes]:
    """Lower each kernel in this thread and generate its code in another thread.

    TIR passes call back into Python, so they would only wait for each other; LLVM does not.
    """
    context = tvm.transform.PassContext.current()
    settings = {"opt_level": context.opt_level, "config": dict(context.config.items())}
    threads = min(len(kernels), len(os.sched_getaffinity(0)))
    if threads == 0:
        return {}
    with ThreadPoolExecutor(threads) as pool:
        codes: dict[str, Future[bytes]] = {}
        finished: list[Future[bytes]] = []
        for symbol, (_, func) in kernels.items():
            own = target_of(func, target)
            lowered = _lower(func, symbol, own)
            codes[symbol] = pool.submit(_generate, lowered, own, settings)
            codes[symbol].add_done_callback(finished.append)
            report_progress("compile kernels", len(finished), len(kernels))
        for done, _ in enumerate(as_completed(codes.values()), 1):
            report_progress("compile kernels", max(done, len(finished)), len(kernels))
        return {symbol: code.result() for symbol, code in codes.items()}


def _lower(func: tvm.tirx.PrimFunc, symbol: str, target: Target) -> tvm.IRModule:
    """The passes of a TVM build for one CPU function."""
    pipeline, finalize_host, _ = tvm.tirx.get_tir_pipeline(PIPELINE)
    mod = tvm.IRModule({symbol: func})
    mod = tvm.tirx.transform.BindTarget(target.with_host(target))(mod)
    return finalize_host()(pipeline(mod))


def _generate(mod: tvm.IRModule, target: Target, settings: Mapping[str, Any]) -> bytes:
    """Generate object code of a lowered function, in memory: LLVM aborts where a disk is full."""
    with (
        open(os.memfd_create("kernel"), "rb") as file,
        tvm.transform.PassContext(**settings),  # each thread has its own
    ):
        codegen_build(mod, target).write_to_file(f"/proc/self/fd/{file.fileno()}", "o")
        return file.read()


def _static_libraries(objects: Mapping[str, bytes]) -> list[Any]:
    """Modules that only hold object code until they are linked."""
    libraries = []
    with TemporaryFolder("kernels") as folder:
        for index, (symbol, code) in enumerate(objects.items()):
            path = Path(folder) / f"{index}.o"  # overwriting a file may wait for the disk
            try:
                path.write_bytes(code)
            except OSError as error:
                raise BuildError(
                    f"can't write object code to {folder}: {error.strerror}; make room, or name "
                    "another folder in TMPDIR"
                ) from error
            libraries.append(tvm.runtime.load_static_library(str(path), [symbol]))
    return libraries


def _target_marker(host: Target) -> tvm.tirx.PrimFunc:
    """An empty function from whose module TVM's export learns the CPU and the triple.

    Without a kernel to compile, TVM would link an empty C source file instead.
    """
    marker = tvm.tirx.PrimFunc([], tvm.tirx.Evaluate(tvm.tirx.const(0, "int32")))
    return marker.with_attrs({"global_symbol": _MARKER, "target": host})


def _is_cpu(target: Target) -> bool:
    return target.kind.name == "llvm" and device_kind(target) == "cpu"
