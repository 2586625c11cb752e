"""Cheaper builds in tests: link without the compiler's driver, compile without LLVM's optimizer.

The driver starts three processes and takes seven times as long as the linker. LLVM does not
optimize the kernels in tests of importers, front doors and graph passes, except in `make sweep`;
others test code generation.
"""

from __future__ import annotations

import functools
import pathlib
import shlex
import subprocess
from collections.abc import Sequence
from typing import Any

from tvm.support import cc
from tvm.target import Target

from tests.sweep import FACTOR

ROOT = pathlib.Path(__file__).parent
UNOPTIMIZED = tuple(
    ROOT / folder
    for folder in (
        "compiler/legacy",
        "compiler/lowering/graph_passes",
        "compiler/lowering/selection/ops",
        "compiler/mxnet",
        "compiler/ort",
        "compiler/partition",
        "compiler/relay",
        "scripts/models",
    )
)
"""Folders of tests about graphs and operators, whose kernels need not be fast."""

create_shared = cc.create_shared


def is_optimized(path: pathlib.Path) -> bool:
    """Whether LLVM optimizes the kernels of a test file."""
    return FACTOR > 1 or not any(folder in path.parents for folder in UNOPTIMIZED)


def unoptimized(target: Target) -> Target:
    """The LLVM target without LLVM's optimizer."""
    return Target({**target.export(), "opt-level": 0})


def link(
    output: str, objects: Sequence[str] | str, options: Any = None, cc: Any = None, **more: Any
) -> None:
    """`tvm.support.cc.create_shared`; object files go to the linker directly."""
    files = [objects] if isinstance(objects, str) else list(objects)
    around = None if options or cc or more else _linker(_default())
    if around and all(str(file).endswith(".o") for file in files):
        command = [*around[0], "-o", str(output), *map(str, files), *around[1]]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return
    create_shared(output, objects, options, cc, **more)


def _default() -> str | None:
    return cc.get_cc()


@functools.cache
def _linker(driver: str | None) -> tuple[list[str], list[str]] | None:
    """The words of the linker's command that a driver starts, before and after the objects."""
    if driver is None:
        return None
    shown = subprocess.run(
        [driver, "-shared", "-fPIC", "-o", "OUT", "IN.o", "-###"],
        capture_output=True,
        text=True,
        check=False,
    ).stderr
    lines = [line for line in shown.splitlines() if "collect2" in line and " IN.o" in line]
    if len(lines) != 1:
        return None
    words = [word for word in shlex.split(lines[0])[1:] if not word.startswith("-plugin-opt")]
    if "-plugin" in words:
        del words[words.index("-plugin") : words.index("-plugin") + 2]
    at = words.index("-o")
    del words[at : at + 2]
    middle = words.index("IN.o")
    return ["ld", *words[:middle]], words[middle + 1 :]
