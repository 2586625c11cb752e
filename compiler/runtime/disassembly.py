"""The machine code of a library's CPU kernels as assembly text.

A library holds its kernels as object code (`lowering.codegen.compile_kernels`). What is read here
is that code, disassembled, so that a build costs nothing for a text that few ask for.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from compiler.errors import BuildError
from compiler.support.tempdir import TemporaryFolder

# LLVM's knows all machines, GNU's those that it was made for.
_DISASSEMBLERS = ("llvm-objdump", "objdump")


def object_modules(module: Any) -> Iterator[Any]:
    """The modules with object code among a module and what it imports."""
    if module.kind == "static_library":
        yield module
    for each in module.imports:
        yield from object_modules(each)


def assembly(module: Any) -> str:
    """Assembly text of the object code in a module and in its imports.

    `module`: what `lib.get_lib()` returns. Returns one listing per kernel; "" for a module without
    object code, such as a loaded file.
    Raises BuildError: there is neither llvm-objdump nor objdump, or none of them knows the machine.
    """
    with TemporaryFolder("assembly") as folder:
        path = Path(folder) / "kernel.o"
        texts = []
        for each in object_modules(module):
            each.write_to_file(str(path), "o")
            texts.append(_disassembled(path))
    return "\n".join(texts)


def _disassembled(path: Path) -> str:
    said = []
    for name in _DISASSEMBLERS:
        program = shutil.which(name)
        if program is None:
            said.append(f"{name}: not found")
            continue
        # All features that an instruction may belong to; GNU's program shows them all anyway.
        every = ["--mattr=+all"] if name.startswith("llvm") and _is_arm(path) else []
        command = [program, "-d", "--no-show-raw-insn", *every, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.replace(str(path), path.name)
        said.append(f"{name}: {done.stderr.strip().splitlines()[-1:] or done.returncode}")
    raise BuildError(
        "no program here disassembles the kernels; install binutils, or LLVM for the code of "
        f"other machines ({'; '.join(said)})"
    )


def _is_arm(path: Path) -> bool:
    """Whether the ELF file is for AArch64 or Arm (machines 183 and 40)."""
    header = path.read_bytes()[:20]
    return header[:4] == b"\x7fELF" and int.from_bytes(header[18:20], "little") in (40, 183)
