"""Target strings, dicts and objects of compile scripts -> checked `tvm.target.Target`.

TVM 0.27 takes a target with options as a dict only, and checks few of its values. `parse`
reads what scripts and tuning logs of TVM 0.6 to 0.18 say instead, and refuses what TVM would
accept only to fail, warn, or compile for something else later.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import tvm
from tvm.target import Target

from compiler.errors import TargetError, UnavailableTargetError
from compiler.runtime import cuda_runtime
from compiler.runtime.cpu import host_features

from . import cpu, nvcc
from .config import (
    CPU_KINDS,
    TargetLike,
    checked_config,
    checked_host,
    config_of_object,
    shown,
    to_cli,
)

logger = logging.getLogger("baton.target")

_GPU_KINDS = frozenset({"cuda", "nvptx", "rocm", "opencl", "metal", "vulkan", "webgpu"})


def parse(target: TargetLike | None = None, target_host: TargetLike | None = None) -> Target:
    """Read a target in any form that compile scripts use.

    Parameters
    ----------
    target : Target, dict or str, optional
        A tvm Target, a dict as TVM 0.27 takes it, a JSON string of one, a tag
        ("nvidia/nvidia-a100"), or a command line as in TVM 0.18 ("llvm -mcpu=skylake-avx512
        -num-cores=18", grammar in `compiler.target.text`). Left out: `Target.current()`.
    target_host : same forms, optional
        Target of the code that runs on the CPU. Left out: the target's own host; a target
        that is not a CPU and has none gets this machine's CPU.

    Returns
    -------
    target : Target
        An llvm target with neither `mcpu` nor `mtriple` is this machine's CPU, without the
        instruction sets that the machine hides; with a triple alone it is "generic". A cuda
        target without `arch` is the GPU in this machine. Attributes that TVM dropped are left
        out, with one line on the logger "baton.target".

    Raises
    ------
    TargetError
        Not understood: the kind, an attribute, a value, or no target at all.
    UnavailableTargetError
        A kind that TVM no longer has, or an architecture that its LLVM lacks.
    """
    if target is None:
        target = Target.current()
        if target is None:
            raise TargetError(
                "no target was given and none is active; pass one, for example "
                '"llvm" (this machine\'s CPU), "llvm -mcpu=x86-64-v3" or "cuda -arch=sm_90", '
                "or build inside `with tvm.target.Target(...)`"
            )
    dropped: list[str] = []
    config = checked_config(target, dropped)
    if target_host is not None:
        config["host"] = checked_host(target_host, dropped)
    if "host" not in config and config["kind"] not in CPU_KINDS:
        config["host"] = checked_host("llvm", dropped)
    if dropped:
        logger.warning("%s: %s", shown(target), "; ".join(dropped))
    return _construct(config, target)


def with_attributes(target: Target, attributes: Mapping[str, Any]) -> Target:
    """The target with some attributes replaced."""
    if not attributes:
        return target
    return parse({**config_of_object(target), **attributes})


def is_gpu(target: Target) -> bool:
    return str(target.kind.name) in _GPU_KINDS


def cpu_features(target: Target) -> frozenset[str]:
    """Instruction sets that the target's CPU code may use, by LLVM's names ("avx2", "fma").

    For a GPU the code of its host counts. C code is compiled for the compiler's baseline, so that
    kind has none. Raises TargetError: the target has no CPU code at all.
    """
    kind = str(target.kind.name)
    if kind == "c":
        return frozenset()
    if kind != "llvm":
        if target.host is None:
            raise TargetError(f"target {to_cli(target)!r} has neither CPU code nor a host")
        return cpu_features(target.host)
    attributes = config_of_object(target)
    return cpu.isa_features(
        attributes.get("mtriple", cpu.system_triple()),
        attributes.get("mcpu", "generic"),
        attributes.get("mattr", []),
    )


def host_cpu_features() -> frozenset[str]:
    """Instruction sets of this machine's CPU, as far as they can be detected."""
    return host_features()


def check_buildable(target: Target) -> None:
    """Raise UnavailableTargetError unless this machine can compile for a target from `parse`.

    The error names what is missing: the code generator, the CUDA compiler or its support for the
    architecture, a C compiler, or TVM's runtime for the device.
    """
    kind = str(target.kind.name)
    shown = repr(to_cli(target))
    if tvm.get_global_func(f"target.build.{kind}", allow_missing=True) is None:
        raise UnavailableTargetError(f"{shown}: this TVM has no code generator for {kind!r}")
    if kind == "cuda":
        try:
            nvcc.require(str(target.attrs["arch"]))
        except UnavailableTargetError as error:
            raise UnavailableTargetError(f"{shown}: {error}") from error
        cuda_runtime.missing()  # loaded where it can be, so that tvm.cuda() is there afterwards
    elif kind == "c":
        if tvm.support.cc.get_cc() is None:
            raise UnavailableTargetError(f"{shown}: no C compiler; install gcc or set CXX")
    elif kind != "llvm":
        loader = f"ffi.Module.load_from_bytes.{kind}"
        if tvm.get_global_func(loader, allow_missing=True) is None:
            raise UnavailableTargetError(
                f"{shown}: this TVM has no runtime for {kind!r}, so that nothing compiled for it "
                "could be loaded; build for llvm or cuda"
            )
    if target.host is not None:
        check_buildable(target.host)


def _construct(config: dict[str, Any], given: TargetLike) -> Target:
    try:
        return Target(config)
    except (ValueError, TypeError, RuntimeError) as error:
        raise TargetError(f"TVM refuses the target {shown(given)}: {error}") from error
