"""What ptxas says of kernels: registers, spills, static shared memory."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from compiler.runtime import cuda_files
from schedules.cuda import limits


def _program(name: str) -> str | None:
    return shutil.which(name) or cuda_files.program(name)


NVCC, PTXAS = _program("nvcc"), _program("ptxas")
_KERNEL = re.compile(r"Compiling entry function '([\w$]+)'")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
# C7510 and its neighbors: ptxas waits after each wgmma, because of registers that are touched.
_SERIALIZED = re.compile(r"wgmma\S* instructions are serialized.*in the function '([\w$]+)'")


@dataclass(frozen=True)
class Resources:
    """Of one kernel: registers of a thread, bytes spilled, bytes of static shared memory.

    `serialized`: whether ptxas waits for each `wgmma` of it at once.
    """

    registers: int
    spilled: int
    shared: int
    serialized: bool = False

    def occupancy(self, arch: str, threads: int, dynamic_shared: int) -> tuple[int, float]:
        """Blocks that a multiprocessor runs at a time, and the share of its threads these are."""
        of_device = limits.of_arch(arch)
        blocks = of_device.resident_blocks(threads, self.registers, self.shared + dynamic_shared)
        return blocks, blocks * threads / of_device.threads_per_sm


def resources(ptx: str, arch: str) -> dict[str, Resources]:
    """What each kernel of a module takes, by name."""
    assert PTXAS is not None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "k.ptx")
        path.write_text(ptx)
        command = [PTXAS, "-v", "-O3", f"-arch={arch}", "-o", str(path.with_suffix(".cubin"))]
        done = subprocess.run([*command, str(path)], check=True, capture_output=True, text=True)
    serialized = set(_SERIALIZED.findall(done.stderr))
    found = {}
    for part in done.stderr.split("ptxas info    : Compiling")[1:]:
        name = _KERNEL.match("Compiling" + part)
        spills, used, shared = (rule.search(part) for rule in (_SPILLS, _USED, _SHARED))
        assert name and spills and used, part
        spilled = int(spills[1]) + int(spills[2])
        found[name[1]] = Resources(
            int(used[1]), spilled, int(shared[1]) if shared else 0, name[1] in serialized
        )
    return found
