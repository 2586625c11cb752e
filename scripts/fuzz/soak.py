#!/usr/bin/env python3
"""Run networks in four threads for a long time, with builds and loads beside them.

    scripts/fuzz/soak.py --minutes 120 [model.onnx ...]

Every result must be what the first one was, to the bit. The process must not grow: what it holds
least in the last third of the time is compared with the middle third, for its memory, its mappings
of files and its descriptors. No file may be left in the folder for temporary files. Without models,
small networks of `relay.testing`.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import pathlib
import random
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from typing import Any, NamedTuple

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
SMALL: dict[str, dict[str, Any]] = {
    "mlp": {"batch_size": 1},
    "resnet": {"num_layers": 18, "image_shape": (3, 32, 32), "num_classes": 10},
    "mobilenet": {"image_shape": (3, 64, 64), "num_classes": 10},
    "squeezenet": {"image_shape": (3, 64, 64), "num_classes": 10},
    "dcgan": {"batch_size": 1},
    "vgg": {"batch_size": 1, "num_layers": 11, "image_shape": (3, 32, 32), "num_classes": 10},
}
SLACK = 20
"""Mappings and descriptors that may be more: executors of another network, an open file."""


class Network:
    """A network, its library, its inputs, and the results that every run must have."""

    def __init__(self, name: str, mod: Any, params: dict[str, Any]):
        self.name, self.mod, self.params = name, mod, params
        self.library = self.build()
        rng = np.random.default_rng(0)
        self.inputs = {
            each.name: rng.standard_normal(each.shape).astype(each.dtype)
            if each.dtype.startswith("float")
            else np.zeros(each.shape, each.dtype)
            for each in self.library.metadata.inputs
        }
        self.expected = self.results(self.library)

    def build(self) -> Any:
        import tvm

        from compiler import relay

        with tvm.transform.PassContext(opt_level=3):
            return relay.build(self.mod, "llvm", params=self.params)

    def results(self, library: Any) -> list[np.ndarray]:
        """One inference of a library."""
        return self.run(self.executor(library))

    def executor(self, library: Any) -> Any:
        import tvm

        from compiler.runtime import graph_executor

        module = graph_executor.GraphModule(library["default"](tvm.cpu()))
        module.set_input(self.inputs)
        return module

    def run(self, module: Any) -> list[np.ndarray]:
        module.run()
        return [module.get_output(i).numpy() for i in range(module.get_num_outputs())]

    def is_right(self, results: list[np.ndarray]) -> bool:
        """Whether results are those of the first inference, to the bit."""
        return all(map(np.array_equal, results, self.expected))


class Soak:
    """Threads that run, build and load until `stop` is set."""

    def __init__(self, networks: list[Network], folder: pathlib.Path):
        self.networks, self.folder = networks, folder
        self.stop = threading.Event()
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []

    def note(self, what: str, network: Network, right: bool) -> None:
        """Count a run, and keep what was wrong."""
        self.counts[what] += 1
        if not right:
            self.faults.append(f"{what} of {network.name}: another result")

    def watched(self, work: Any, *arguments: Any) -> None:
        """Work until the end; an error is a fault."""
        try:
            work(*arguments)
        except Exception as error:
            self.faults.append(f"{work.__name__}: {type(error).__name__}: {error}")

    def infer(self, number: int) -> None:
        """Inferences of all networks in turn, by executors of this thread's own."""
        order = self.networks[number:] + self.networks[:number]
        executors = [(network, network.executor(network.library)) for network in order]
        while not self.stop.is_set():
            for network, executor in executors:
                self.note("runs", network, network.is_right(network.run(executor)))

    def build(self) -> None:
        """Builds, exports and loads, every other one without what the cache has."""
        from compiler.runtime import load_module

        rng = random.Random(0)
        while not self.stop.is_set():
            network = rng.choice(self.networks)
            os.environ["BATON_KERNEL_CACHE_BYTES"] = rng.choice(["0", "1000000000"])
            library = network.build()
            path = self.folder / f"{network.name}.so"
            library.export_library(path)
            self.note("builds", network, network.is_right(network.results(library)))
            self.note("loads", network, network.is_right(network.results(load_module(path))))
            path.unlink()


class Use(NamedTuple):
    """What this process holds that a leak would add to, after what is free went back."""

    megabytes: float
    mappings: int
    descriptors: int

    @staticmethod
    def now() -> Use:
        """What it holds at this moment."""
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # what is free in the allocator's heaps
        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
        mapped = re.findall(r"/.+$", pathlib.Path("/proc/self/maps").read_text(), re.MULTILINE)
        return Use(
            pages * os.sysconf("SC_PAGE_SIZE") / 1e6, len(mapped), len(os.listdir("/proc/self/fd"))
        )

    @staticmethod
    def least(of: list[Use]) -> Use:
        """The least of each: between builds there is a moment at which none holds anything."""
        return Use(*map(min, zip(*of)))


def networks_of(paths: list[pathlib.Path]) -> list[Network]:
    """The models of these files, or small ones."""
    from compiler import relay
    from compiler.relay import testing

    if paths:
        return [Network(path.stem, *relay.frontend.from_onnx(path)) for path in paths]
    return [
        Network(name, *getattr(testing, name).get_workload(**options))
        for name, options in SMALL.items()
    ]


def main() -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", type=pathlib.Path, help="ONNX files")
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--growth", type=float, default=60, help="megabytes that are still right")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        temporary, folder = pathlib.Path(name) / "temporary", pathlib.Path(name) / "out"
        temporary.mkdir()
        folder.mkdir()
        os.environ.update(TMPDIR=str(temporary), XDG_CACHE_HOME=str(pathlib.Path(name) / "cache"))
        tempfile.tempdir = None  # what it had looked up
        soak = Soak(networks_of(args.models), folder)
        threads = [
            threading.Thread(target=soak.watched, args=arguments)
            for arguments in [*((soak.infer, i) for i in range(args.threads)), (soak.build,)]
        ]
        for thread in threads:
            thread.start()
        used = []
        started, seconds = time.monotonic(), 60 * args.minutes
        while (passed := time.monotonic() - started) < seconds and not soak.faults:
            time.sleep(min(5.0, seconds - passed))
            used.append(Use.now())
            if len(used) % 12 == 0:
                least = Use.least(used[-12:])
                print(f"{passed / 60:.1f} min: {least}, {dict(soak.counts)}", flush=True)
        soak.stop.set()
        for thread in threads:
            thread.join()
        third = max(len(used) // 3, 1)
        settled, last = Use.least(used[third : 2 * third] or used), Use.least(used[-third:])
        for name, before, after in zip(Use._fields, settled, last):
            print(f"{name}: {before:.0f}, then {after - before:+.0f}")
            if after - before > (args.growth if name == "megabytes" else SLACK):
                soak.faults.append(f"{name} grew by {after - before:.0f}")
        left = [str(path) for part in (temporary, folder) for path in part.rglob("*")]
        soak.faults += [f"left behind: {path}" for path in left if path.endswith((".tmp", ".so"))]
        print(dict(soak.counts))
        print("\n".join(soak.faults) or "no faults")
    return 1 if soak.faults else 0


if __name__ == "__main__":
    sys.exit(main())
