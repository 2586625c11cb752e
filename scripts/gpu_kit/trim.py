"""Leaves out of TVM's compiler what no build for NVIDIA's GPUs runs: LLVM's other processors.

A workload runs with an auditor of the dynamic loader, which notes the pages of code that it
touches. Long stretches that nothing touched are filled with breakpoint instructions, which xz
packs to nothing. Short ones stay: they may be branches that another build takes.

    python -m scripts.gpu_kit.trim build/gpu-kit-parts
"""

from __future__ import annotations

import argparse
import itertools
import os
import pathlib
import subprocess
import sys
import tempfile
from importlib import metadata
from typing import Any

import numpy as np

SOURCE = pathlib.Path(__file__).with_name("trace_code.c")
PAGE = 4096
STRETCH = 16
"""Untouched pages in a row that are left out."""
MARGIN = 1
"""Pages next to touched ones that stay."""
BREAKPOINT = 0xCC
# Machines that hold GPUs, besides the one that is here.
HOSTS = ("sapphirerapids", "icelake-server", "znver3", "znver4", "x86-64-v3")
ON_THE_GPU = """
from tests.cuda_mock.device import Device
device = Device(execute=False)
import tvm
from compiler import relay
from compiler.runtime import graph_executor
from scripts.gpu_kit import networks
mod, inputs = networks.small_network()
module = graph_executor.GraphModule(relay.build(mod, "cuda")["default"](tvm.cuda(0)))
for _ in range(3):
    module.run(**inputs)
"""
WORKLOAD = "from scripts.gpu_kit.trim import workload; workload()"


def library() -> pathlib.Path:
    """The compiler of TVM's wheel."""
    site = pathlib.Path(metadata.distribution("apache-tvm").locate_file(""))  # type: ignore[arg-type]
    return site / "tvm" / "lib" / "libtvm_compiler.so"


def workload() -> None:
    """Builds of all kinds that the kit's stage f has, for some processors of the host."""
    import tvm
    from tvm.target import Target

    import compiler
    from compiler import relay
    from compiler.lowering.bind import bind_params
    from compiler.models import fill_weights
    from compiler.target.nvcc import device_code
    from scripts.gpu_kit import networks
    from tests.schedules.cuda.families import FAMILIES

    def built(mod: tvm.IRModule, host: str, precision: str = "default", params: Any = None) -> None:
        target = Target({"kind": "cuda", "arch": "sm_90"}, host={"kind": "llvm", "mcpu": host})
        with compiler.PassContext(opt_level=3, config={"baton.precision": precision}):
            library = relay.build(mod, target, params=params)
        with tempfile.TemporaryDirectory() as folder:
            library.export_library(f"{folder}/library.so")

    network, _ = networks.small_network()
    on_the_mocked_gpu()
    for target in ("cuda -arch=sm_90", "llvm"):  # the processor that is here is found out
        relay.build(network, target)
    for host in HOSTS:
        built(network, host)
    for each in networks.TIMED:
        built(each.module(each.dtypes[0]), HOSTS[0])
    for family, arch in itertools.product(FAMILIES, ("sm_80", "sm_90", "sm_90a")):
        if (family.arch or arch) != arch:
            continue
        func = tvm.ir.load_json(tvm.ir.save_json(family.func()))
        _, func, target = family.scheduled(arch)
        with device_code():
            module = tvm.IRModule({"kernel": func.with_attr("global_symbol", "kernel")})
            tvm.compile(module, target)
    for name in ("resnet18_v1", "minilm", "mobilenetv2_1_0", "squeezenet1_1"):
        mod, params = relay.frontend.from_onnx(fill_weights.hydrate(name))
        half = relay.transform.InferType()(bind_params(mod, params)[0])
        built(relay.transform.ToMixedPrecision("float16")(half), HOSTS[0])
        for precision in ("default", "tf32"):
            built(mod, HOSTS[3], precision, params)


def on_the_mocked_gpu() -> None:
    """Build and run for the GPU that TVM's runtime sees, as stage f does."""
    from tests import cuda_mock
    from tests.ptx import ptxas

    with tempfile.TemporaryDirectory() as folder:
        home = cuda_mock.make_home(pathlib.Path(folder, "home"), ptxas.NVCC)
        cuda_mock.run(ON_THE_GPU, home)


def touched_pages(parts: pathlib.Path) -> np.ndarray:
    """A byte for each page of the compiler's code: whether the workload touched it; it is kept."""
    kept = parts / f"compiler-{metadata.version('apache-tvm')}.pages"
    if not kept.exists():
        draft = kept.with_suffix(".draft")
        draft.write_bytes(traced(WORKLOAD))
        os.replace(draft, kept)
    return np.frombuffer(kept.read_bytes(), np.uint8)


def traced(program: str) -> bytes:
    """A byte for each page of the compiler's code that a Python program touches."""
    with tempfile.TemporaryDirectory() as folder:
        auditor, noted = f"{folder}/auditor.so", pathlib.Path(folder, "pages")
        command = ["gcc", "-O2", "-shared", "-fPIC", "-o", auditor, str(SOURCE)]
        subprocess.run(command, check=True)
        environment = {**os.environ, "LD_AUDIT": auditor, "TRACED_PAGES": str(noted)}
        # Kernels that are kept would not be compiled again.
        environment["XDG_CACHE_HOME"] = folder
        subprocess.run([sys.executable, "-c", program], env=environment, check=True)
        return noted.read_bytes()


def trimmed(content: bytes, touched: np.ndarray) -> bytes:
    """The library without stretches of code that nothing touched.

    `touched`: a byte for each page of the executable segment, whose place the ELF header gives.
    """
    start = _code_offset(content)
    stays = touched.astype(bool)
    for _ in range(MARGIN):
        grown = stays.copy()
        grown[1:] |= stays[:-1]
        grown[:-1] |= stays[1:]
        stays = grown
    found = bytearray(content)
    at = 0
    for stay, group in itertools.groupby(stays.tolist()):
        count = sum(1 for _ in group)
        # The last page has what follows the segment.
        if not stay and count >= STRETCH and at + count < len(stays):
            first, last = start + at * PAGE, start + (at + count) * PAGE
            found[first:last] = bytes([BREAKPOINT]) * (last - first)
        at += count
    return bytes(found)


def _code_offset(content: bytes) -> int:
    """Where the executable segment begins in a file, by its program headers."""
    table = int.from_bytes(content[32:40], "little")
    size, count = (int.from_bytes(content[at : at + 2], "little") for at in (54, 56))
    for at in range(table, table + size * count, size):
        kind, flags = (int.from_bytes(content[at + to : at + to + 4], "little") for to in (0, 4))
        if kind == 1 and flags & 1:
            return int.from_bytes(content[at + 8 : at + 16], "little")
    raise ValueError("the library has no executable segment")


def main() -> None:
    """Trace, and say how much is left out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", type=pathlib.Path)
    touched = touched_pages(parser.parse_args().parts)
    content = library().read_bytes()
    left_out = trimmed(content, touched).count(BREAKPOINT) - content.count(BREAKPOINT)
    print(f"{touched.sum()} of {len(touched)} pages are touched, {left_out / 1e6:.0f} MB left out")


if __name__ == "__main__":
    main()
