"""Triples, CPU names and CPU features, checked against what TVM's LLVM knows.

LLVM itself answers a wrong name with a printed warning and a generic CPU, a wrong triple with
a crash, and some combinations by ending the process. Every check here comes before that.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from compiler.errors import TargetError, UnavailableTargetError
from compiler.runtime.cpu import missing_features
from compiler.support import strictness

# First part of a triple -> LLVM's name of the architecture. The first match counts. LLVM reads
# more than these; all others are rejected, because LLVM crashes on an unknown
# architecture and on some MIPS CPUs.
_ARCHITECTURES = [
    (re.compile(pattern), name)
    for pattern, name in [
        (r"x86_64h?|amd64", "x86_64"),
        (r"i[3-9]86", "i386"),
        (r"aarch64|arm64|arm64e|arm64ec", "aarch64"),
        (r"aarch64_be", "aarch64_be"),
        (r"aarch64_32|arm64_32", "aarch64_32"),
        (r"arm(v\d[a-z0-9.-]*)?eb|armeb", "armeb"),
        (r"arm(v\d[a-z0-9.-]*)?", "arm"),
        (r"thumb(v\d[a-z0-9.-]*)?eb|thumbeb", "thumbeb"),
        (r"thumb(v\d[a-z0-9.-]*)?", "thumb"),
        (r"powerpc64le|ppc64le", "powerpc64le"),
        (r"powerpc64|ppc64", "powerpc64"),
        (r"powerpcle|ppcle", "powerpcle"),
        (r"powerpc|ppc", "powerpc"),
        (r"riscv32|riscv64|riscv32be|riscv64be", r"\g<0>"),
        (r"loongarch32|loongarch64", r"\g<0>"),
        (r"s390x|systemz", "s390x"),
        (r"wasm32|wasm64|hexagon|amdgcn", r"\g<0>"),
    ]
]
_TRIPLE = re.compile(r"[A-Za-z0-9_.+-]+")
# What every 64-bit x86 target needs; without it LLVM ends the process.
_X86_64_BASELINE = frozenset({"64bit", "sse2"})
# Hints about what is fast, and modes: no instruction is missing where they are.
_TUNING = re.compile(
    r"(fast|faster|slow|false-deps|no-bypass|prefer|tuning|use|idiv[lq]-to|lea|pad|allow-light"
    r"|sbb-dep|branch)-.*|(macro|branch)fusion|vzeroupper|ermsb|fsrm|64bit(-mode)?"
)


def system_triple() -> str:
    """Triple of the code that TVM's LLVM makes when a target names none."""
    from tvm.target import codegen

    return str(codegen.llvm_get_system_triple())


def architecture(triple: str) -> str:
    """LLVM's name of a triple's architecture. UnavailableTargetError: malformed, or unsupported."""
    from tvm.target import codegen

    known = [str(name) for name in codegen.llvm_get_targets()]
    first = triple.split("-", 1)[0]
    for pattern, name in _ARCHITECTURES:
        match = pattern.fullmatch(first)
        if match and match.expand(name) in known and _TRIPLE.fullmatch(triple):
            return match.expand(name)
    raise UnavailableTargetError(
        f"-mtriple={triple} is not a triple that TVM's LLVM compiles for: {first!r} is none "
        "of the architectures; write for example x86_64-linux-gnu or aarch64-linux-gnu"
    )


def host_cpu() -> tuple[str, list[str]]:
    """This machine's -mcpu, and a -mattr that turns off what a virtual machine hides."""
    from schedules.x86.machine.host import host_name

    name = host_name()
    return name, [f"-{hidden}" for hidden in missing_features(features(system_triple(), name))]


def known_cpu(name: str, triple: str) -> str:
    """The CPU itself if LLVM knows it; for old scripts else "generic", which LLVM takes then.

    Raises TargetError: LLVM does not know the CPU, or can make no code for the triple with it.
    """
    known = _cpu_names(triple)
    if name in known:
        return name
    error = TargetError(
        f"-mcpu={name} is not a CPU that TVM's LLVM knows for {triple}"
        + _nearest(name, known)
        + ("; leave -mcpu away for this machine's CPU" if triple == system_triple() else "")
    )
    strictness.refuse(error, "code is made for -mcpu=generic, as TVM did")
    return "generic"


def check_features(triple: str, cpu: str, attributes: Sequence[str]) -> None:
    """Raise TargetError unless every -mattr element is a signed feature that LLVM knows.

    Also raises when no code can be made with what CPU and attributes leave over.
    """
    for attribute in attributes:
        sign, name = attribute[:1], attribute[1:]
        if sign not in ("+", "-") or not name:
            raise TargetError(
                f"-mattr element {attribute!r} has no sign; write +{attribute} or -{attribute}"
            )
        # Features that no CPU has by default show only when asked for. With a wrong name LLVM
        # prints an extra line before the error.
        known = _known_features(triple)
        if name not in known and name not in features(triple, cpu, [f"+{name}"]):
            raise TargetError(
                f"-mattr={attribute} names no CPU feature that TVM's LLVM knows for {triple}"
                + _nearest(name, known)
            )
    if architecture(triple) == "x86_64":
        lacking = _X86_64_BASELINE - features(triple, cpu, attributes)
        if lacking:
            raise TargetError(
                f"-mcpu={cpu}{_mattr(attributes)} lacks {', '.join(sorted(lacking))}, which "
                f"code for {triple} can't do without; choose a 64-bit CPU such as x86-64, "
                "or a 32-bit triple such as i686-linux-gnu"
            )


def features(triple: str, cpu: str, attributes: Sequence[str] = ()) -> frozenset[str]:
    """Names of all LLVM features, tuning hints among them, that CPU and attributes switch on."""
    from tvm.target import Target, codegen

    config: dict[str, Any] = {"kind": "llvm", "mtriple": triple, "mcpu": cpu}
    if attributes:
        config["mattr"] = list(attributes)
    return frozenset(str(name) for name in codegen.llvm_get_cpu_features(Target(config)))


def isa_features(triple: str, cpu: str, attributes: Sequence[str] = ()) -> frozenset[str]:
    """The instruction-set extensions among `features`."""
    return frozenset(
        name for name in features(triple, cpu, attributes) if not _TUNING.fullmatch(name)
    )


@lru_cache(maxsize=16)
def _cpu_names(triple: str) -> tuple[str, ...]:
    from tvm.target import Target, codegen

    architecture(triple)
    config = Target({"kind": "llvm", "mtriple": triple})
    return tuple(str(name) for name in codegen.llvm_get_cpu_archlist(config))


@lru_cache(maxsize=16)
def _known_features(triple: str) -> frozenset[str]:
    return frozenset[str]().union(*(features(triple, cpu) for cpu in _cpu_names(triple)))


def _mattr(attributes: Sequence[str]) -> str:
    return f" -mattr={','.join(attributes)}" if attributes else ""


def _nearest(name: str, known: Sequence[str] | frozenset[str]) -> str:
    near = difflib.get_close_matches(name, sorted(known), n=3)
    return f"; the nearest names are {', '.join(near)}" if near else ""
