#!/usr/bin/env python3
"""Measure numbers of fewer bits against the peers and against float32: int8, bfloat16, float16.

    python -m scripts.models.quantized models-q models/*.onnx --kinds qdq
    python -m scripts.bench.precision models models-q --threads 1 2 --output rows.json
    python -m scripts.bench.precision models models-q --target "llvm -mcpu=haswell"

For each NAME_qdq.onnx, NAME_dynamic.onnx and NAME_f16.onnx of the second folder, and NAME.onnx of
the first, all engines run the same file in turn (`baton bench`). Rows that the output file has
already are not measured again; builds are in Baton's caches the second time. `--build` only builds.
With a target, Baton is measured alone, without bfloat16.

int8      Baton, onnxruntime and OpenVINO at NAME_qdq.onnx
dynamic   Baton and onnxruntime at NAME_dynamic.onnx
floats    Baton, Baton in bfloat16, and OpenVINO with the hint of bfloat16 at NAME.onnx
f16       Baton, onnxruntime and OpenVINO at NAME_f16.onnx

The table has the best round of each engine in ms, how many times as long the better peer takes, the
share of float32's time that the shorter numbers leave, and Baton's largest error, relative to the
largest result of onnxruntime's.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from compiler.cli.bench import BenchOptions, Comparison, ModelResult, benchmark
from compiler.cli.compile import BuildOptions
from compiler.cli.console import Steps

PEERS = {
    "int8": ("onnxruntime", "openvino"),
    "dynamic": ("onnxruntime",),
    "floats": ("openvino-bf16",),
    "f16": ("onnxruntime", "openvino"),
}
PRECISIONS = {**dict.fromkeys(PEERS, ("default",)), "floats": ("default", "bf16")}
LAST = ("f16", "f32/f16", "peer/f16", "dynamic", "peer/dynamic")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", type=pathlib.Path)
    parser.add_argument("quantized", type=pathlib.Path)
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--names", nargs="+", help="some of the models")
    parser.add_argument("--kinds", nargs="+", choices=[*PEERS], default=[*PEERS])
    parser.add_argument("--target", help="of Baton, which is measured alone")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.2, help="of a round of an engine")
    parser.add_argument("--output", type=pathlib.Path, help="a JSON file for the rows")
    parser.add_argument("--build", action="store_true", help="fill the caches, measure nothing")
    given = parser.parse_args()
    rows = json.loads(given.output.read_text()) if given.output and given.output.exists() else {}
    for threads in given.threads:
        for name, kind, path in files(given.models, given.quantized, given.names):
            if kind not in given.kinds:
                continue
            key = f"{name} {kind} {threads}"
            options = BenchOptions(
                peers=() if given.target else PEERS[kind],
                threads=threads,
                rounds=given.rounds,
                seconds=given.seconds,
                precisions=("default",) if given.target else PRECISIONS[kind],
                build=BuildOptions(target=given.target or BuildOptions().target),
            )
            if given.build:
                build(path, options)
            elif key not in rows:
                rows[key] = row(*benchmark([str(path)], options))
                print(key, rows[key], flush=True)
                if given.output:
                    given.output.write_text(json.dumps(rows, indent=1))
        if not given.build:
            show(rows, threads)


def files(
    models: pathlib.Path, quantized: pathlib.Path, names: Sequence[str] | None
) -> Iterator[tuple[str, str, pathlib.Path]]:
    """(name, kind, path) of what there is."""
    found = {path.name.removesuffix("_qdq.onnx") for path in quantized.glob("*_qdq.onnx")}
    for name in sorted(found if names is None else found & set(names)):
        paths = {
            "int8": quantized / f"{name}_qdq.onnx",
            "dynamic": quantized / f"{name}_dynamic.onnx",
            "floats": models / f"{name}.onnx",
            "f16": quantized / f"{name}_f16.onnx",
        }
        yield from ((name, kind, path) for kind, path in paths.items() if path.exists())


def build(path: pathlib.Path, options: BenchOptions) -> None:
    """Build Baton's libraries of a model, which then are in the caches."""
    with Comparison(path.stem, path, options, Steps()) as comparison:
        for engine in options.own_engines:
            comparison.build(engine)


def row(result: ModelResult) -> dict[str, Any]:
    """Least milliseconds and error by engine, or why there are none."""
    return {
        name: {"failed": each.failed}
        if not each.rounds_ms
        else {"ms": min(each.rounds_ms), "error": each.error}
        for name, each in result.engines.items()
    }


def show(rows: dict[str, Any], threads: int) -> None:
    """Print a table of one number of threads, and the geometric means of its ratios."""

    def ms(name: str, kind: str, *engines: str) -> float | None:
        entry = rows.get(f"{name} {kind} {threads}", {})
        known = [entry[engine]["ms"] for engine in engines if "ms" in entry.get(engine, {})]
        return min(known, default=None)

    names = sorted({key.split()[0] for key in rows if key.endswith(f" {threads}")})
    header = ("model", "int8", "peer/int8", "f32", "f32/int8", "bf16", "f32/bf16", "peer/bf16")
    print(f"\n{threads} thread(s)\n" + " ".join(f"{each:>15}" for each in header), end="")
    last = (("error", 10), ("OpenVINO", 10), *((each, 12) for each in LAST))
    print(" " + " ".join(f"{each:>{width}}" for each, width in last))
    ratios: dict[str, list[float]] = {each: [] for each in (*header, *LAST) if "/" in each}
    for name in names:
        int8, wide = ms(name, "int8", "baton"), ms(name, "floats", "baton")
        short, half = ms(name, "floats", "baton-bf16"), ms(name, "f16", "baton")
        moving = ms(name, "dynamic", "baton")
        found = {
            "int8": int8,
            "peer/int8": _ratio(ms(name, "int8", *PEERS["int8"]), int8),
            "f32": wide,
            "f32/int8": _ratio(wide, int8),
            "bf16": short,
            "f32/bf16": _ratio(wide, short),
            "peer/bf16": _ratio(ms(name, "floats", *PEERS["floats"]), short),
            "f16": half,
            "f32/f16": _ratio(wide, half),
            "peer/f16": _ratio(ms(name, "f16", *PEERS["f16"]), half),
            "dynamic": moving,
            "peer/dynamic": _ratio(ms(name, "dynamic", *PEERS["dynamic"]), moving),
        }
        errors = [
            rows.get(f"{name} floats {threads}", {}).get(engine, {}).get("error")
            for engine in ("baton-bf16", "openvino-bf16")
        ]
        cells = [f"{_text(found[each]):>15}" for each in header[1:]]
        cells += [f"{_text(each, 4):>10}" for each in errors]
        cells += [f"{_text(found[each]):>12}" for each in LAST]
        print(f"{name:>15} " + " ".join(cells))
        for each, values in ratios.items():
            if (ratio := found[each]) is not None:
                values.append(ratio)
    for each, values in ratios.items():
        if values:
            mean = statistics.geometric_mean(values)
            print(f"{each}: geometric mean {mean:.2f}, least {min(values):.2f} of {len(values)}")


def _ratio(above: float | None, below: float | None) -> float | None:
    return None if above is None or below is None else above / below


def _text(number: float | None, digits: int = 2) -> str:
    return "-" if number is None else f"{number:.{digits}f}"


if __name__ == "__main__":
    main()
