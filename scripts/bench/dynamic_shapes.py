#!/usr/bin/env python3
"""Measure one library for all extents against a library for each, and against the peers, in turn.

    python -m scripts.bench.dynamic_shapes FOLDER --check         # results at all points
    python -m scripts.bench.dynamic_shapes FOLDER --build-only    # kernels of all into the cache
    python -m scripts.bench.dynamic_shapes FOLDER                 # times, into FOLDER/times.json
    python -m scripts.bench.dynamic_shapes FOLDER --every         # of all batches and lengths
    python -m scripts.bench.dynamic_shapes FOLDER --write docs    # a table of them

The networks are those of `dynamic.py`, with symbols for their batch, and length where they
have one. Baton builds each once with symbols and, for "static", once for each point; onnxruntime
and OpenVINO read the same file with symbols. All run on one thread and in alternation; noted is the
least processor time of a run in milliseconds, which other work on the machine lengthens less than
the clock's, and the largest difference of the results from onnxruntime's, relative to the largest
result. What is there already is neither made nor measured again: remove it, or rows, to have it
anew. The networks take 1.3 GB. `--every` measures 300 points instead of 72, those with the fewest
rows first: about 50 minutes on a Zen 5, 10 of them for static libraries unless `--build-only` came
before; `--minutes` stops in between, and the same command goes on from there.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import itertools
import json
import math
import os
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from scripts.bench.turns import time_in_turn

ENGINES = ("symbolic", "static", "onnxruntime", "openvino")
LENGTHS = (1, 7, 16, 32, 100, 128, 384, 512)
BATCHES = (1, 2, 3, 4, 8, 16)
TIMED = [*((1, length) for length in LENGTHS), (4, 32), (16, 32)]
"""Batches and lengths that are measured without `--every`; results are compared at all of both."""
SIZES = {"height": (64, 112, 160, 224, 320), "samples": (4000, 8000, 16000, 24000, 48000)}
"""Extents of networks of any image size (height and width alike) or sound, by their symbol."""

Point = tuple[int, int]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--networks", default="", help="some of them, by name")
    parser.add_argument("--points", default="", help="some of them, as 1x128,4x32")
    parser.add_argument("--check", action="store_true", help="compare results, measure nothing")
    parser.add_argument("--write", type=pathlib.Path, help="where the table goes")
    parser.add_argument("--every", action="store_true", help="all batches at all lengths")
    parser.add_argument("--build-only", action="store_true", help="fill the cache of kernels")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no point after these")
    parser.add_argument("--seconds", type=float, default=3, help="for each point")
    args = parser.parse_args()
    os.environ |= {"TVM_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    from scripts.models.dynamic import NETWORKS

    if args.write:
        text = table(json.loads((args.folder / "times.json").read_text()))
        (args.write / "dynamic_times.md").write_text(text)
        return 0
    end = time.monotonic() + 60 * args.minutes
    for name in args.networks.split(",") if args.networks else NETWORKS:
        network = Network(name, args.folder)
        every = args.check or args.every or bool(args.points)
        points = [point for point in network.points(every) if named(point, args.points)]
        if args.check:
            check(network, points)
        elif args.build_only:
            for point in (None, *points):
                network.baton(point)
        else:
            measure_all(network, points, args.folder / "times.json", args.seconds, end)
    return 0


def named(point: Point, wanted: str) -> bool:
    """Whether `--points` asks for a point."""
    return not wanted or f"{point[0]}x{point[1]}" in wanted.split(",")


Prepare = Callable[[dict[str, np.ndarray]], tuple[Callable[[], Any], Callable[[], np.ndarray]]]
"""From inputs to a function that runs once, and one that gives the first result."""


class Network:
    """A network and its inputs."""

    def __init__(self, name: str, folder: pathlib.Path) -> None:
        from scripts.models.dynamic import network

        self.name, self.folder = name, folder
        self.path = network(name, folder)

        import onnx

        self.proto = onnx.load(self.path, load_external_data=False)
        symbols = {
            dim.dim_param
            for value in self.proto.graph.input
            for dim in value.type.tensor_type.shape.dim
        }
        self.has_length = bool({"seq", "frames"} & symbols)
        self.sizes = next((SIZES[name] for name in symbols & set(SIZES)), None)

    def points(self, every: bool = False) -> list[Point]:
        """Batches and lengths, or sizes of images and sounds; 0 where only the batch is open."""
        if self.sizes:
            return [(1, size) for size in self.sizes]
        if not self.has_length:
            return [(batch, 0) for batch in BATCHES]
        every_one = sorted(itertools.product(BATCHES, LENGTHS), key=math.prod)
        return every_one if every else TIMED

    def feeds(self, point: Point) -> dict[str, np.ndarray]:
        from scripts.models.random_inputs import random_inputs

        batch, length = point
        extents = {"batch": batch, "seq": length, "frames": 2 * length, "samples": length}
        extents |= {"height": length, "width": length}
        return random_inputs(self.proto, np.random.default_rng(0), extents)

    def baton(self, point: Point | None = None) -> Prepare:
        """Baton's library with symbols, or for the shapes of a point."""
        import tvm

        from compiler import relay
        from compiler.runtime import graph_executor

        feeds = {} if point is None else self.feeds(point)
        shapes = {name: value.shape for name, value in feeds.items()}
        mod, params = relay.frontend.from_onnx(str(self.path), shape=shapes or None)
        with tvm.transform.PassContext(opt_level=3):
            library = relay.build(mod, "llvm", params=params)

        def prepare(feeds: dict[str, np.ndarray]) -> Any:
            module = graph_executor.GraphModule(library["default"](tvm.cpu()))
            module.set_input(feeds)
            return module.run, lambda: module.get_output(0).numpy()

        return prepare


def onnxruntime(path: pathlib.Path) -> Prepare:
    """A session on one thread."""
    import onnxruntime as peer

    options = peer.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = peer.InferenceSession(str(path), options)
    return lambda feeds: (lambda: session.run(None, feeds), lambda: session.run(None, feeds)[0])


def openvino(path: pathlib.Path) -> Prepare:
    """A model compiled for the CPU, for one thread and float32."""
    import openvino as peer

    settings = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    compiled = peer.compile_model(peer.Core().read_model(str(path)), "CPU", settings)

    def prepare(feeds: dict[str, np.ndarray]) -> Any:
        request = compiled.create_infer_request()
        return lambda: request.infer(feeds), lambda: request.infer(feeds)[0]

    return prepare


def check(network: Network, points: list[Point]) -> None:
    """Compare the results of the library with symbols with onnxruntime's."""
    own, peer = network.baton(), onnxruntime(network.path)
    errors = [difference(own(feeds), peer(feeds)) for feeds in map(network.feeds, points)]
    print(f"{network.name}: {len(points)} points, largest difference {max(errors):.1e}", flush=True)


def difference(own: Any, peer: Any) -> float:
    """Of the first results of an engine, which runs for it, and of a peer."""
    own[0]()
    got, wanted = own[1](), peer[1]()
    return float(np.abs(got - wanted).max() / np.abs(wanted).max())


def measure_all(
    network: Network, points: list[Point], path: pathlib.Path, seconds: float, end: float
) -> None:
    """Add the rows of points that are not among the times yet, until a time of `monotonic`."""
    rows = json.loads(path.read_text()) if path.exists() else []
    done = {(row["network"], row["batch"], row["length"]) for row in rows}
    points = [point for point in points if (network.name, *point) not in done]
    if not points or time.monotonic() > end:
        return
    engines = {
        "symbolic": network.baton(),
        "onnxruntime": onnxruntime(network.path),
        "openvino": openvino(network.path),
    }
    for point in itertools.takewhile(lambda _: time.monotonic() <= end, points):
        feeds = network.feeds(point)
        runs = {name: prepare(feeds) for name, prepare in engines.items()}
        runs["static"] = network.baton(point)(feeds)
        row = {"network": network.name, "batch": point[0], "length": point[1]}
        rows.append({**row, **measure(runs, seconds)})
        path.write_text(json.dumps(rows, indent=1))
        show(rows[-1])


def measure(runs: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The least milliseconds of a run, in alternation, and the difference of the results."""
    error = difference(runs["symbolic"], runs["onnxruntime"])
    functions = {name: function for name, (function, _) in runs.items()}
    times = time_in_turn(functions, 50, seconds, time.process_time)
    return {**{name: min(each) for name, each in times.items()}, "error": error}


def of_static(row: dict[str, Any]) -> float:
    """Time relative to the static library."""
    return float(row["symbolic"] / row["static"])


def of_peers(row: dict[str, Any]) -> float:
    """Time of the faster peer relative to the library with symbols."""
    return float(min(row["onnxruntime"], row["openvino"]) / row["symbolic"])


def table(rows: list[dict[str, Any]]) -> str:
    """The text of `dynamic_times.md`: all points, and how many of them meet the goals."""
    rows = sorted(rows, key=lambda row: (row["network"], row["batch"], row["length"]))
    near = sum(of_static(row) <= 1.1 for row in rows)
    ahead = sum(of_peers(row) >= 1 for row in rows)
    tvm = importlib.metadata.version("apache-tvm")
    lines = [
        "# One library for all extents: all points",
        "",
        "`scripts/bench/dynamic_shapes.py` measured them: milliseconds of processor time, one",
        f"thread, recorded on {datetime.date.today()} with TVM {tvm}. "
        f"Of {len(rows)} points, {near} are within 10 % of the library for that point",
        f"alone, and {ahead} at least as fast as the faster peer.",
        "",
        "| network | batch | length | symbolic | static | onnxruntime | OpenVINO "
        "| / static | peer / |",
        "|" + "---|" * 9,
    ]
    for row in rows:
        times = " | ".join(f"{row[name]:.2f}" for name in ENGINES)
        where = f"{row['network']} | {row['batch']} | {row['length'] or ''}"
        lines.append(f"| {where} | {times} | {of_static(row):.2f} | {of_peers(row):.2f} |")
    error = max(row["error"] for row in rows)
    lines += ["", f"Results differ from onnxruntime's by {error:.0e} of the largest one at most."]
    return "\n".join(lines) + "\n"


def show(row: dict[str, Any]) -> None:
    times = " ".join(f"{name} {row[name]:.2f}" for name in ENGINES)
    print(
        f"{row['network']:11} {row['batch']:3} x {row['length']:3}  {times}  "
        f"of static {of_static(row):.2f}  faster than peers {of_peers(row):.2f}  "
        f"error {row['error']:.1e}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
