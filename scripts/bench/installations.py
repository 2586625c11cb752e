#!/usr/bin/env python3
"""What installations take that run a model: disk, time of a start, memory.

    scripts/bench/installations.py dist model.onnx model.so
    scripts/bench/installations.py dist squeezenet1_1.onnx sq.so --starts 20 --json

`dist` is what `make wheel` leaves, `model.so` what `baton compile` made of `model.onnx`. Makes
fresh environments with `baton-runtime`, with `baton-tvm` and with `onnxruntime`. The starts of
their processes are in turn; times are the least of all starts, from the program's first line on.
Megabytes (10^6 bytes): of the packages without pip and without compiled Python, and of the
resident set, pages of mapped files included.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import tempfile
from collections.abc import Sequence

from scripts.release.environments import Environment

MEASURES = {
    "disk": "disk, MB",
    "import_s": "import, s",
    "import_mb": "imported, MB",
    "answer_s": "first answer, s",
    "answer_mb": "answered, MB",
}

BATON = """
from compiler.runtime import load_module
load_module
imported = note()
session = load_module(PATH).session(num_threads=1)
inputs = {each.name: (each.shape, each.dtype) for each in session.inputs}
"""

ONNXRUNTIME = """
import numpy, onnxruntime
imported = note()
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
loaded = onnxruntime.InferenceSession(PATH, options, providers=["CPUExecutionProvider"])
types = {"tensor(float)": "float32", "tensor(int64)": "int64", "tensor(int32)": "int32"}
inputs = {each.name: (each.shape, types[each.type]) for each in loaded.get_inputs()}
class session:
    run = staticmethod(lambda feed: loaded.run(None, feed))
"""

PROGRAM = """
import time
start = time.perf_counter()

def note():
    with open("/proc/self/status") as status:
        (line,) = (line for line in status if line.startswith("VmRSS"))
    return time.perf_counter() - start, int(line.split()[1]) * 1024 / 1e6

{engine}
import numpy
session.run({{name: numpy.ones(shape, dtype) for name, (shape, dtype) in inputs.items()}})
answered = note()
import json
keys = ("import_s", "import_mb", "answer_s", "answer_mb")
print(json.dumps(dict(zip(keys, (*imported, *answered)))))
"""


def measure(
    dist: pathlib.Path, model: pathlib.Path, library: pathlib.Path, starts: int
) -> dict[str, dict[str, float]]:
    """Each of `MEASURES` for each installation."""
    wheels = {name: _wheel(dist, name) for name in ("baton_runtime", "baton_tvm")}
    packages = {
        "baton-runtime": (wheels["baton_runtime"], BATON, library),
        "onnxruntime": ("onnxruntime", ONNXRUNTIME, model),
        "baton-tvm": (wheels["baton_tvm"], BATON, library),
    }
    with tempfile.TemporaryDirectory(prefix="baton-installations-") as name:
        folder = pathlib.Path(name).resolve()
        environments = {
            package: Environment(folder / package, str(requirement), cache=folder / "cache")
            for package, (requirement, _, _) in packages.items()
        }
        programs = {
            package: PROGRAM.format(engine=engine.replace("PATH", repr(str(path))))
            for package, (_, engine, path) in packages.items()
        }
        found = {each: {"disk": made.megabytes()} for each, made in environments.items()}
        for _ in range(starts + 1):  # the first reads files from the disk
            for package, program in programs.items():
                told = json.loads(environments[package].python("-c", program))
                best = found[package]
                best.update({key: min(best.get(key, told[key]), told[key]) for key in told})
    return found


def _wheel(dist: pathlib.Path, name: str) -> pathlib.Path:
    (path,) = dist.resolve().glob(f"{name}-*.whl")
    return path


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("dist", type=pathlib.Path, help="folder with the wheels")
    parser.add_argument("model", type=pathlib.Path, help="ONNX file with inputs of fixed shapes")
    parser.add_argument("library", type=pathlib.Path, help="what was compiled of it")
    parser.add_argument("--starts", type=int, default=10)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    options = parser.parse_args(arguments)
    paths = (options.dist, options.model.resolve(), options.library.resolve())
    found = measure(*paths, options.starts)
    if options.json:
        print(json.dumps(found, indent=1))
        return
    print(f"{'':14}", *(f"{title:>16}" for title in MEASURES.values()))
    for package, values in found.items():
        print(f"{package:14}", *(f"{values[key]:16.2f}" for key in MEASURES))


if __name__ == "__main__":
    main()
