#!/usr/bin/env python3
"""Compare detection networks with onnxruntime, by results and by time, in turn.

    python -m scripts.models.detectors folder          # once, where torch is installed
    python -m scripts.bench.detection folder --build-only
    python -m scripts.bench.detection folder --output detection.md

Libraries are kept beside the models, so that a later run only measures. All run on one thread, in
alternation; printed is the least wall-clock time of a run in milliseconds. Results are compared
row by row: equal counts, and the largest difference of boxes in pixels
and of scores. Rows whose scores are nearly equal may come in any order.
"""

from __future__ import annotations

import argparse
import pathlib
import time
from typing import Any

import numpy as np

NEAR = 1e-3, 0.5
"""How near the score of a box must be to that of its partner, and its corners, in pixels."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", help="names, separated by commas; otherwise all of the folder")
    parser.add_argument("--target", default="llvm")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--build-only", action="store_true")
    parser.add_argument("--output", type=pathlib.Path, help="a Markdown file for the table")
    args = parser.parse_args()

    paths = sorted(args.folder.glob("*.onnx"))
    if args.only:
        paths = [args.folder / f"{name}.onnx" for name in args.only.split(",")]
    feeds = {"image": np.load(args.folder / "image.npy")}
    rows, wrong = [], 0
    for path in paths:
        library = path.with_suffix(".so")
        try:
            seconds = build(path, library, args.target)
            if args.build_only:
                print(f"{path.stem:26} built in {seconds:.0f} s", flush=True)
                continue
            row = measure(path, library, feeds, args.rounds)
        except Exception as error:
            wrong += 1
            print(f"{path.stem:26} {type(error).__name__}: {str(error)[:400]}", flush=True)
            continue
        rows.append(row)
        print(line(row), flush=True)
    if args.output and rows:
        args.output.write_text("\n".join([*HEAD, *map(line, rows)]) + "\n")
    return int(wrong > 0)


HEAD = [
    "| network | boxes | Baton | onnxruntime | onnxruntime / Baton | boxes differ by | scores by |",
    "|---|---|---|---|---|---|---|",
]


def line(row: dict[str, Any]) -> str:
    """A row of the table."""
    ratio = row["onnxruntime"] / row["baton"]
    return (
        f"| {row['name']} | {row['count']} | {row['baton']:.2f} | {row['onnxruntime']:.2f} | "
        f"{ratio:.2f} | {row['boxes']:.1e} | {row['scores']:.1e} |"
    )


def build(path: pathlib.Path, library: pathlib.Path, target: str) -> float:
    """Compile a model unless that was done; returns the seconds."""
    import tvm

    from compiler import relay

    if library.exists() and library.stat().st_mtime > path.stat().st_mtime:
        return 0.0
    began = time.perf_counter()
    mod, params = relay.frontend.from_onnx(str(path))
    with tvm.transform.PassContext(opt_level=3):
        relay.build(mod, target=target, params=params).export_library(str(library))
    return time.perf_counter() - began


def measure(
    path: pathlib.Path, library: pathlib.Path, feeds: dict[str, np.ndarray], rounds: int
) -> dict[str, Any]:
    """Results compared, and the least time of a run of each engine in milliseconds."""
    import onnxruntime

    from compiler.runtime import load_module

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    peer = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    session = load_module(str(library)).session(num_threads=1)
    names = [each.name for each in peer.get_outputs()]
    expected = dict(zip(names, peer.run(None, feeds)))
    row = {"name": path.stem, **compare(session.run(feeds), expected)}
    engines = {"baton": lambda: session.run(feeds), "onnxruntime": lambda: peer.run(None, feeds)}
    best = dict.fromkeys(engines, float("inf"))
    for _ in range(rounds):
        for name, run in engines.items():
            began = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - began)
    return row | {name: seconds * 1e3 for name, seconds in best.items()}


def compare(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> dict[str, Any]:
    """The number of boxes, and the largest differences of boxes and scores.

    Raises
    ------
    ValueError
        The counts differ, or a box of one has no partner of the same label in the other.
    """
    count = len(expected["scores"])
    if {name: value.shape for name, value in found.items()} != {
        name: value.shape for name, value in expected.items()
    }:
        shapes = {name: value.shape for name, value in found.items()}
        raise ValueError(f"shapes {shapes}; onnxruntime finds {count} boxes")
    free = np.ones(count, bool)
    boxes = scores = 0.0
    for index in range(count):
        near = free & (np.abs(found["scores"] - expected["scores"][index]) < NEAR[0])
        near &= found["labels"] == expected["labels"][index]
        apart = np.abs(found["boxes"] - expected["boxes"][index]).max(1)
        place = int(np.argmin(np.where(near, apart, np.inf)))
        if not near[place] or apart[place] > NEAR[1]:
            raise ValueError(f"box {index} of score {expected['scores'][index]} is missing")
        free[place] = False
        boxes = max(boxes, float(apart[place]))
        scores = max(scores, abs(float(found["scores"][place] - expected["scores"][index])))
        if "masks" in expected:
            mask = np.abs(found["masks"][place] - expected["masks"][index])
            scores = max(scores, float(mask.max()))
    return {"count": count, "boxes": boxes, "scores": scores}


if __name__ == "__main__":
    raise SystemExit(main())
