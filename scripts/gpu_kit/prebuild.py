"""Builds the kit's libraries, each in a file that is kept, with inputs and expected results.

    python -m scripts.gpu_kit.prebuild build/gpu-kit-parts --arch sm_90 sm_80

What is there already is not built again, so that an interrupted run goes on, unless the sources of
the compiler have changed. Each case is a
folder-less group of files: `NAME.npz` with inputs and expected results, `NAME-ARCH.so`, and for
models `NAME-ARCH.json` and `NAME-ARCH.npz` with the recipes of the weights.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import tvm
from onnx import numpy_helper
from tvm.target import Target

import compiler
from compiler import relay
from compiler.lowering.bind import bind_params
from compiler.models import fill_weights
from compiler.partition import partition
from compiler.runtime import graph_executor
from compiler.target.nvcc import device_code
from scripts.conformance.cuda_models import shrink
from scripts.gpu_kit import networks
from scripts.gpu_kit.on_device import weights as made_weights
from scripts.gpu_kit.recipes import find_recipes
from tests.schedules.cuda.families import FAMILIES, Family
from tests.test_models import example_inputs

ROOT = pathlib.Path(__file__).resolve().parents[2]
DTYPES = ("float16", "tf32", "float32")
HOST = {"kind": "llvm", "mcpu": "x86-64-v3"}
"""Any machine that holds a GPU has AVX2."""
TOLERANCE = {"float32": 1e-4, "tf32": 2e-2, "float16": 3e-2}
"""Error bound of a model's results, relative to the greatest."""


def slug(name: str) -> str:
    """A file name of a case's name."""
    return "".join(letter if letter.isalnum() else "_" for letter in name)


def target_of(arch: str) -> Target:
    """A GPU beside any CPU with AVX2."""
    return Target({"kind": "cuda", "arch": arch}, host=HOST)


def sources_digest() -> str:
    """Hash of the sources of the compiler and of the cases."""
    found = hashlib.sha256()
    folders = ("compiler", "schedules", "scripts/gpu_kit", "tests/schedules/cuda")
    for path in sorted(each for name in folders for each in (ROOT / name).rglob("*.py")):
        if "on_device" not in path.parts and path.name not in ("pack.py", "trim.py", "dry_run.py"):
            found.update(path.read_bytes())
    return found.hexdigest()


class Folder:
    """Where cases are kept; those of other sources, by their digest, are deleted."""

    def __init__(self, path: pathlib.Path, digest: str = "") -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        stamp = path / "sources.sha256"
        if stamp.exists() and stamp.read_text() != digest:
            for old in path.iterdir():
                if not old.name.startswith("compiler-"):
                    old.unlink()
        stamp.write_text(digest)

    def keep(self, name: str, write: Callable[[pathlib.Path], object]) -> None:
        """Write a file unless it is there; it appears whole or not at all."""
        path = self.path / name
        if path.exists():
            return
        draft = path.with_name(f"draft-{name}")
        start = time.perf_counter()
        write(draft)
        os.replace(draft, path)
        print(f"{name:56}{time.perf_counter() - start:8.1f} s", flush=True)

    def values(self, name: str, make: Callable[[], dict[str, np.ndarray]]) -> None:
        """Keep arrays in NAME.npz."""
        self.keep(f"{name}.npz", lambda path: _save(path, make()))


def _save(path: pathlib.Path, arrays: dict[str, Any]) -> None:
    with path.open("wb") as file:
        np.savez(file, **arrays)


def numbered(inputs: dict[str, np.ndarray] | list[np.ndarray], outputs: list[np.ndarray]) -> dict:
    """Inputs under "in NAME", results under "out NUMBER"."""
    named = inputs if isinstance(inputs, dict) else dict(enumerate(inputs))
    return {
        **{f"in {name}": values for name, values in named.items()},
        **{f"out {at}": values for at, values in enumerate(outputs)},
    }


def on_the_cpu(mod: tvm.IRModule, params: dict, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Results of a build for this machine's CPU."""
    module = graph_executor.GraphModule(
        relay.build(mod, "llvm", params=params)["default"](tvm.cpu())
    )
    module.run(**inputs)
    return [module.get_output(at).numpy() for at in range(module.get_num_outputs())]


def built(
    mod: tvm.IRModule, arch: str, dtype: str = "float32", params: dict | None = None, **config: Any
) -> Any:
    """A build for a GPU; "tf32" is a precision of float32."""
    if dtype == "tf32":
        config["baton.precision"] = "tf32"
    with compiler.PassContext(opt_level=3, config=config):
        return relay.build(mod, target_of(arch), params=params)


def family(folder: Folder, each: Family, archs: list[str]) -> dict[str, Any]:
    """A family's kernel as a library of TVM's, with the result of the CPU."""
    name = f"family_{slug(each.name)}"

    def values() -> dict[str, np.ndarray]:
        inputs = each.inputs()
        return numbered([_storable(x) for x in inputs], [_expected(each, inputs)])

    def library(arch: str, path: pathlib.Path) -> None:
        _, func, _ = each.scheduled(arch)
        module = tvm.IRModule({"kernel": func.with_attr("global_symbol", "kernel")})
        with device_code():
            tvm.compile(module, target_of(arch)).export_library(str(path))

    folder.values(name, values)
    folder.keep(f"{name}.tir.json", lambda path: path.write_text(tvm.ir.save_json(each.func())))
    for arch in archs:
        folder.keep(f"{name}-{arch}.so", functools.partial(library, arch))
    params = each.func().params
    return {
        "case": name,
        "title": each.name,
        "kind": "family",
        "dtypes": [str(param.dtype) for param in params],
        "shape": [int(extent) for extent in params[-1].shape],
        "tolerance": each.tolerance,
    }


def _storable(values: np.ndarray) -> np.ndarray:
    """bfloat16 as its bits: numpy's files have no such type."""
    return values.view("uint16") if str(values.dtype) == "bfloat16" else values


def _expected(each: Family, inputs: list[np.ndarray]) -> np.ndarray:
    from tests.schedules.cuda.checking import reference

    found = each.expected(inputs) if each.expected else reference(each.func(), inputs)
    return (
        found.astype("float32")
        if found.dtype.kind == "f" or str(found.dtype) == "bfloat16"
        else found
    )


def model(folder: Folder, name: str, archs: list[str], small: bool) -> Iterator[dict[str, Any]]:
    """One of the six models in each dtype, without its weights."""
    case = f"model_{name}{'_small' if small else ''}"
    network = fill_weights.hydrate(name)
    if small:
        shrink(name, network)
    inputs = example_inputs(network)
    mod, params = relay.frontend.from_onnx(network)
    folder.values(case, lambda: numbered(inputs, on_the_cpu(mod, params, inputs)))
    sources = {each.name: numpy_helper.to_array(each) for each in network.graph.initializer}
    folder.values(f"{case}-sources", lambda: _unseeded(name, sources))
    folder.keep(
        f"{case}.graph.json", lambda path: path.write_text(json.dumps(_graph(name, network)))
    )
    scales: dict[str, np.ndarray] = {}
    for dtype in reversed(DTYPES):  # float32 finds the scales
        for arch in archs:
            _model_library(folder, case, arch, dtype, network, sources, scales)
    for dtype in DTYPES:
        yield {
            "case": case,
            "title": f"{name} {dtype}",
            "kind": "model",
            "dtype": dtype,
            "tolerance": TOLERANCE[dtype],
        }


def _model_library(
    folder: Folder,
    case: str,
    arch: str,
    dtype: str,
    network: onnx.ModelProto,
    sources: dict[str, np.ndarray],
    scales: dict[str, np.ndarray],
) -> None:
    stem = f"{case}-{dtype}-{arch}"
    if (folder.path / f"{stem}.so").exists():
        with np.load(folder.path / f"{stem}.npz") as kept:
            scales.update(
                {
                    key.removeprefix("scale of "): kept[key]
                    for key in kept
                    if key.startswith("scale of ")
                }
            )
        return
    mod, params = relay.frontend.from_onnx(network)
    if dtype == "float16":
        mod = relay.transform.InferType()(bind_params(mod, params)[0])
        mod, params = relay.transform.ToMixedPrecision(dtype)(mod), {}
    library = built(mod, arch, dtype, params)
    weights = {name: tensor.numpy() for name, tensor in library.params.items()}
    recipes, arrays = find_recipes(sources, weights, scales)
    said = {
        "recipes": recipes,
        "digests": {name: made_weights.digest(values) for name, values in weights.items()},
        "kernels": [
            (each.name, each.implementation, each.calls) for each in library.report.kernels
        ],
    }
    folder.values(stem, lambda: arrays)
    folder.keep(f"{stem}.json", lambda path: path.write_text(json.dumps(said)))
    bare = library.remove_params()
    folder.keep(f"{stem}.so", lambda path: bare.export_library(str(path)))


def described(name: str) -> dict[str, Any]:
    props = onnx.load(fill_weights.skeleton(name)).metadata_props
    return json.loads(next(each.value for each in props if each.key == fill_weights.KEY))


def _unseeded(name: str, sources: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Initializers that `seeded` does not make: small ones, and those of a shrunk model."""
    info = described(name)
    return {
        key: values
        for key, values in sources.items()
        if key not in info or not np.array_equal(made_weights.seeded(key, info[key]), values)
    }


def _graph(name: str, network: onnx.ModelProto) -> dict[str, Any]:
    """The model for `on_device.torch_models`: nodes, seeded initializers, inputs, outputs."""
    weights = {each.name for each in network.graph.initializer}
    return {
        "nodes": [
            {
                "op": node.op_type,
                "inputs": list(node.input),
                "outputs": list(node.output),
                "attributes": {
                    each.name: _attribute(onnx.helper.get_attribute_value(each))
                    for each in node.attribute
                },
            }
            for node in network.graph.node
        ],
        "seeded": described(name),
        "inputs": [each.name for each in network.graph.input if each.name not in weights],
        "outputs": [each.name for each in network.graph.output],
    }


def _attribute(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value).tolist()
    return value if isinstance(value, (int, float, str)) else list(value)


def network(
    folder: Folder, name: str, layers: networks.Layers, archs: list[str], **how: Any
) -> dict[str, Any]:
    """A small network with its weights inside; how it was built is in `how`."""
    mod, inputs = layers
    case = f"network_{slug(name)}"
    folder.values(case, lambda: numbered(inputs, on_the_cpu(mod, {}, inputs)))
    for arch in archs:

        def write(path: pathlib.Path, arch: str = arch) -> None:
            parted = partition(mod, how["backend"]) if "backend" in how else mod
            config: dict[str, Any] = (
                {} if how.get("graph", True) else {"relax.backend.use_cuda_graph": False}
            )
            built(parted, arch, **config).export_library(str(path))

        folder.keep(f"{case}-{arch}.so", write)
    dtype = str(inputs["x"].dtype)
    tolerance = 2e-2 if dtype == "float16" else 1e-4
    return {"case": case, "title": name, "kind": "network", "tolerance": tolerance, **how}


def timed(folder: Folder, each: networks.Timed, archs: list[str]) -> Iterator[dict[str, Any]]:
    """A layer whose time is taken; results are compared on the machine, with PyTorch's."""
    for dtype in each.dtypes:
        case = f"timed_{slug(each.name)}_{dtype}"
        for arch in (*archs, *(["sm_90a"] if "sm_90" in archs and dtype == "float16" else [])):
            write = functools.partial(_timed_library, each, arch, dtype)
            folder.keep(f"{case}-{arch}.so", write)
        yield {
            "case": case,
            "title": f"{each.name} {dtype}",
            "kind": "timed",
            "dtype": dtype,
            "shapes": each.shapes,
            "torch": each.torch,
            "flops": each.flops,
        }


def _timed_library(each: networks.Timed, arch: str, dtype: str, path: pathlib.Path) -> None:
    built(each.module(dtype), arch, dtype).export_library(str(path))


def cases(folder: Folder, archs: list[str], models: list[str], small: bool) -> Iterator[dict]:
    """Build everything; what the kit's list says of each case."""
    for each in FAMILIES:
        yield family(folder, each, [each.arch] if each.arch else archs)
    networks.register_on_the_cpu()
    plain = networks.small_network()
    yield network(folder, "launched one by one", plain, archs, graph=False)
    yield network(folder, "as a CUDA graph", plain, archs)
    yield network(folder, "on CPU and GPU", plain, archs, backend=networks.ON_THE_CPU)
    for backend in ("cublaslt", "cudnn"):
        for dtype in ("float32", "float16"):
            layer = networks.library_layer(backend, dtype)
            yield network(folder, f"{backend} {dtype}", layer, archs, backend=backend)
    for name in models:
        yield from model(folder, name, archs, small)
    for case in [] if small else networks.TIMED:
        yield from timed(folder, case, archs)


def main() -> None:
    """Build the cases and write their list, `cases.json`."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--arch", nargs="+", default=["sm_90", "sm_80"])
    parser.add_argument("--models", nargs="*", default=fill_weights.names())
    parser.add_argument("--small", action="store_true", help="models small enough to emulate")
    options = parser.parse_args()
    # Uncompressed kernels are smaller in the kit's archive.
    os.environ["NVCC_APPEND_FLAGS"] = "-no-compress"
    folder = Folder(options.folder, sources_digest())
    listed = list(cases(folder, options.arch, options.models, options.small))
    (options.folder / "cases.json").write_text(json.dumps(listed, indent=1))
    print(f"{len(listed)} cases in {options.folder}")


if __name__ == "__main__":
    main()
