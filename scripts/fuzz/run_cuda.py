#!/usr/bin/env python3
"""Random whole networks built for CUDA, on the mocked GPU, against onnxruntime and CPU builds.

    python -m scripts.fuzz.run_cuda --seed 1 --count 100            # open axes as drawn
    python -m scripts.fuzz.run_cuda --seed 1 --count 100 --fixed    # one size, fixed when imported
    python -m scripts.fuzz.run_cuda --seed 1 --first 42 --count 1   # network 42 again

Networks are those of `run_networks`, at one size each. Kernels run in the PTX interpreter, which
reports races and accesses beyond their tensors; code of the host that touches the GPU's memory ends
the process. Needs nvcc and a C compiler. The exit status is 1 if there are findings.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

import numpy as np

from scripts.fuzz.networks.families import draw
from scripts.fuzz.networks.net import Network
from tests import cuda_mock
from tests.ptx import ptxas

SEVERAL = 10
"""Networks of a process."""
ERROR = 1e-4
"""Largest error of a float result, relative to its greatest magnitude."""
TARGET = "cuda -arch=sm_90"


def sizes_of(net: Network, rng: np.random.Generator) -> dict[str, int]:
    """Extents of the open axes: small ones of any kind, or the least ordinary ones."""
    if rng.random() < 0.5:
        return {name: int(rng.integers(1, 6)) for name in net.ordinary}
    ends = {name: (low, min(high, low + 8)) for name, (low, high) in net.ordinary.items()}
    return {name: int(rng.integers(low, high + 1)) for name, (low, high) in ends.items()}


def difference(found: np.ndarray, expected: np.ndarray) -> str:
    """Describe how a result differs from the expected one; "" if it agrees."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        forms = [f"{each.dtype}{list(each.shape)}" for each in (found, expected)]
        return f"{forms[0]} instead of {forms[1]}"
    if found.dtype.kind != "f":
        count = int(np.sum(found != expected))
        return f"{count} of {found.size} differ" if count else ""
    finite = np.isfinite(expected)
    if not np.array_equal(np.isfinite(found), finite):
        return "infinities or NaNs in other places"
    greatest = np.max(np.abs(expected[finite]), initial=1e-3)
    error = np.max(np.abs(found[finite].astype("float64") - expected[finite]), initial=0) / greatest
    return f"error {error:.1e}" if error > ERROR else ""


def attempt(seed: int, number: int, fixed: bool, device: Any) -> dict[str, Any]:
    """Draw, build and run a network; what is wrong with it, in the process with the mocked GPU."""
    import onnxruntime
    import tvm

    from compiler import relay
    from compiler.runtime import graph_executor

    net = draw(seed, number)
    rng = np.random.default_rng([seed, number, 1])
    sizes = sizes_of(net, rng)
    feed = net.feed(sizes, rng)
    said: dict[str, Any] = {"number": number, "stages": net.stages, "sizes": sizes, "wrong": []}
    model = net.model()
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString())
        expected = session.run(None, feed)
    except Exception as error:
        return {**said, "invalid": str(error)[:200]}
    shapes = {name: value.shape for name, value in feed.items()} if fixed else None

    def results(target: str, on: Any) -> list[np.ndarray] | str:
        """Results of a build, or the text of its error."""
        try:
            mod, params = relay.frontend.from_onnx(model, shapes)
            library = relay.build(mod, target=target, params=params)
            executor = graph_executor.GraphModule(library["default"](on))
            executor.run(**feed)
            return [executor.get_output(index).numpy() for index in range(len(expected))]
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:400]

    found = results(TARGET, tvm.cuda(0))
    if isinstance(found, str) or any(map(difference, found, expected)):
        # What the build for the CPU does as well is a finding of `run_networks`.
        expected = results("llvm", tvm.cpu())
    if isinstance(found, str) or isinstance(expected, str):
        said["wrong"] += [] if found == expected else [f"{found}, on the CPU {expected}"[:400]]
    else:
        said["wrong"] += filter(None, map(difference, found, expected))
    said["wrong"] += sorted({str(problem)[:200] for problem in device.problems})[:3]
    said["wrong"] += [repr(error)[:200] for error in device.errors[:1]]
    return said


def work(seed: int, first: int, last: int, fixed: bool) -> None:
    """Try networks, one line of JSON for each."""
    from tests.cuda_mock.device import Device

    device = Device(races=True)
    for number in range(first, last):
        device.launches.clear()
        device.problems.clear()
        device.errors.clear()
        print(json.dumps(attempt(seed, number, fixed, device)), flush=True)


def tried(
    home: pathlib.Path, seed: int, first: int, last: int, fixed: bool, limit: float
) -> list[dict[str, Any]]:
    """Outcomes of networks in one process; a network that ended the process comes last."""
    script = f"from scripts.fuzz import run_cuda; run_cuda.work({seed}, {first}, {last}, {fixed})"
    folders = {"XDG_CACHE_HOME": str(home / "cache")}
    with cuda_mock.start(script, home, **folders) as process:
        try:
            printed, errors = process.communicate(timeout=limit * (last - first))
        except subprocess.TimeoutExpired:
            process.kill()
            printed, errors = process.communicate()
            errors = f"no result in time; {errors}"
    lines = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    if len(lines) < last - first:
        text = f"the process ended with {process.returncode}: {errors[-300:]}"
        lines.append({"number": first + len(lines), "stages": [], "sizes": {}, "wrong": [text]})
    return lines


def main() -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="of the run")
    parser.add_argument("--first", type=int, default=0, help="number of the first network")
    parser.add_argument("--count", type=int, default=100, help="how many networks")
    parser.add_argument("--limit", type=float, default=120, help="seconds for a network")
    parser.add_argument("--fixed", action="store_true", help="one size, fixed when imported")
    args = parser.parse_args()
    if cuda_mock.COMPILER is None or ptxas.NVCC is None:
        parser.error("nvcc or a C compiler is missing: pip install 'baton-tvm[cuda]', install gcc")
    findings = invalid = 0
    at, end = args.first, args.first + args.count
    with tempfile.TemporaryDirectory() as folder:
        home = cuda_mock.make_home(pathlib.Path(folder) / "home", ptxas.NVCC)
        while at < end:
            last = min(at + SEVERAL, end)
            for said in tried(home, args.seed, at, last, args.fixed, args.limit):
                invalid += "invalid" in said
                at = said["number"] + 1
                for wrong in said["wrong"]:
                    findings += 1
                    where = f"network {said['number']} ({', '.join(said['stages'])})"
                    print(f"{where} {said['sizes']}: {wrong}", flush=True)
    print(f"{args.count} networks, {invalid} rejected by onnxruntime, {findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
