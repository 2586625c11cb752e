"""Detect the host CPU: the LLVM CPU name whose code it runs best."""

from __future__ import annotations

import functools
from pathlib import Path

from tvm.target import Target, codegen

from .cpu_models import CORES

_CPUINFO = Path("/proc/cpuinfo")


@functools.lru_cache(maxsize=1)
def host_name() -> str:
    """LLVM's name of this machine's CPU, or the closest of the table (`cores`).

    LLVM goes by the model. A virtual machine may show the model of one CPU and the instructions of
    another, and new models are unknown: the table helps if Linux lists instructions beyond LLVM's.
    """
    name = str(codegen.llvm_get_system_cpu())
    listed = _listed(_text())
    return closest(name, listed) if listed else name


def closest(name: str, listed: frozenset[str]) -> str:
    """The CPU itself if it has all listed instructions and any CPU of the table has.

    Else the one of the table that lacks the fewest, and of alike ones has the fewest others.
    """
    sets = {cpu: _instructions(cpu) for cpu in CORES}
    known = listed & frozenset[str]().union(*sets.values())
    if not known - _instructions(name):
        return name
    return min(sets, key=lambda cpu: (len(known - sets[cpu]), len(sets[cpu] - known)))


def _instructions(cpu: str) -> frozenset[str]:
    """LLVM's features of a CPU as `_spelled`, tuning hints among them."""
    target = Target({"kind": "llvm", "mcpu": cpu})
    return frozenset(_spelled(str(name)) for name in codegen.llvm_get_cpu_features(target))


def _spelled(name: str) -> str:
    """Normalize a feature name, so that LLVM's "amx-int8" equals Linux's "amx_int8"."""
    return name.replace("-", "").replace("_", "").replace(".", "")


def _listed(cpuinfo: str) -> frozenset[str]:
    """Flags of all processors of /proc/cpuinfo on x86, as `_spelled`; none on other CPUs."""
    lines = (line.partition(":") for line in cpuinfo.splitlines())
    flags = [frozenset(value.split()) for name, _, value in lines if name.strip() == "flags"]
    return frozenset(map(_spelled, frozenset.intersection(*flags))) if flags else frozenset()


def _text() -> str:
    try:
        return _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
