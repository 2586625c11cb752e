"""Targets as `tvmc` writes them: `"dnnl, llvm -mcpu=skylake"` partitions for dnnl first."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import tvm

from compiler import relay
from compiler import target as targets

from . import TVMCException

_LIBRARIES = {
    "arm_compute_lib": "compute-library",
    **{name: name for name in ("bnns", "clml", "cublas", "cudnn", "cutlass", "dnnl", "tensorrt")},
}
_KNOWN = {old: name for name, old in _LIBRARIES.items()}
_GONE = ("cmsis-nn", "ethos-n", "ethos-u", "mrvl", "vitis-ai")


def get_codegen_names() -> list[str]:
    """External compilers that may stand in front of a target."""
    return sorted(_KNOWN)


def split_target(target: str) -> tuple[list[tuple[str, dict[str, str]]], str]:
    """External compilers with their options, and the target that compiles the rest.

    Raises
    ------
    TVMCException
        There is no target at the end, or a compiler is not known.
    """
    if target.lstrip().startswith("{"):
        return [], target
    *firsts, last = [part.strip() for part in target.split(",")]
    if not last:
        raise TVMCException("no target is given behind the external compilers")
    found = []
    for part in firsts:
        name, *options = part.split()
        if name in _GONE:
            raise TVMCException(f"target {name!r}: no such backend is left")
        if name not in _KNOWN:
            known = ", ".join(get_codegen_names())
            raise TVMCException(f"target {name!r} is neither a TVM target nor one of {known}")
        pairs = (option.lstrip("-").partition("=") for option in options)
        found.append((_KNOWN[name], {key: value for key, _, value in pairs}))
    return found, last


def parse(target: str, host: str | None, options: Mapping[str, Mapping[str, Any]] | None) -> Any:
    """The target that compiles what no external compiler takes."""
    if target.lstrip().startswith("{"):
        return targets.parse(json.loads(target), host)
    kind = target.split()[0]
    more = [f"-{key}={value}" for key, value in ((options or {}).get(kind) or {}).items()]
    return targets.parse(" ".join([target, *more]), host)


def partition(
    mod: tvm.IRModule, params: Mapping[str, Any], compilers: list[tuple[str, dict[str, str]]]
) -> tvm.IRModule:
    """Hand each external compiler what its patterns find."""
    for name, options in compilers:
        mod = getattr(relay.op.contrib, f"partition_for_{name}")(mod, params, **options)
    return mod
