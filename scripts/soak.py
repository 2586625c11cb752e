#!/usr/bin/env python3
"""Run networks in four threads for a long time, with builds and loads beside them.

    scripts/soak.py --minutes 120 [model.onnx ...]

Every result must be what the first one was, to the bit. The process must not grow, and no file may
be left in the folder for temporary files. Without models, small networks of `relay.testing`.
"""

from __future__ import annotations

import argparse
import gc
import os
import pathlib
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from typing import Any

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
SMALL: dict[str, dict[str, Any]] = {
    "mlp": {"batch_size": 1},
    "resnet": {"num_layers": 18, "image_shape": (3, 32, 32), "num_classes": 10},
    "mobilenet": {"image_shape": (3, 64, 64), "num_classes": 10},
    "squeezenet": {"image_shape": (3, 64, 64), "num_classes": 10},
    "dcgan": {"batch_size": 1},
    "vgg": {"batch_size": 1, "num_layers": 11, "image_shape": (3, 32, 32), "num_classes": 10},
}
SETTLED = 1 / 3
"""Share of the time after which memory must not grow any more."""


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


def megabytes() -> float:
    """Memory of this process that is in use."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


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
    sys.path.insert(0, str(ROOT))
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
            used.append(megabytes())
            if len(used) % 12 == 0:
                print(f"{passed / 60:.1f} min: {used[-1]:.0f} MB, {dict(soak.counts)}", flush=True)
        soak.stop.set()
        for thread in threads:
            thread.join()
        gc.collect()
        settled = max(used[: max(int(len(used) * SETTLED), 1)])
        growth = max(used[-len(used) // 3 :]) - settled
        if growth > args.growth:
            soak.faults.append(f"memory grew by {growth:.0f} MB")
        left = [str(path) for part in (temporary, folder) for path in part.rglob("*")]
        soak.faults += [f"left behind: {path}" for path in left if path.endswith((".tmp", ".so"))]
        print(f"{dict(soak.counts)}, {settled:.0f} MB, then {growth:+.0f} MB")
        print("\n".join(soak.faults) or "no faults")
    return 1 if soak.faults else 0


if __name__ == "__main__":
    sys.exit(main())
