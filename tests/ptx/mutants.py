"""PTX with one thing missing: a barrier, a fence, a wait, a part of a shared array."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.ptx.scheduled import Launch

_MEETING = re.compile(
    r"^\s*(bar\.sync|bar\.warp\.sync|barrier\.\w+|cp\.async\.wait_\w+|fence\.proxy\.async"
    r"|wgmma\.fence|wgmma\.wait_group)[^;]*;",
    re.MULTILINE,
)
_SHARED = re.compile(r"^\s*\.shared (?:\.align \d+ )?\.(\w+) ([\w$]+)(?:\[(\d+)\])?;", re.MULTILINE)


@dataclass(frozen=True)
class Mutant:
    """What is missing, the module and launches without it, and whether it is shared memory."""

    missing: str
    ptx: str
    launches: list[Launch]
    is_shorter: bool = True


def mutants(ptx: str, launches: list[Launch]) -> Iterator[Mutant]:
    """All of them: each barrier, fence and wait removed, each array shortened by a quarter."""
    for match in _MEETING.finditer(ptx):
        line = ptx.count("\n", 0, match.start(1)) + 1
        text = ptx[: match.start()] + ptx[match.end() :]
        yield Mutant(f"{match[1]} of line {line}", text, launches, is_shorter=False)
    for match in _SHARED.finditer(ptx):
        size = int(match[3] or 0)
        if size > 4:
            shorter = match[0].replace(f"[{size}]", f"[{size - max(4, size // 16 * 4)}]")
            text = ptx[: match.start()] + shorter + ptx[match.end() :]
            yield Mutant(f"a quarter of {match[2]}", text, launches)
    for i, launch in enumerate(launches):
        if launch.dynamic_shared:
            less = replace(launch, dynamic_shared=launch.dynamic_shared * 3 // 4)
            yield Mutant(
                f"a quarter of the dynamic shared memory of {launch.kernel}",
                ptx,
                [*launches[:i], less, *launches[i + 1 :]],
            )
