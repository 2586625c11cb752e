"""Loads the kit's cases and compares what they compute on the GPU with what is expected."""

from __future__ import annotations

import ctypes
import functools
import json
import os
import pathlib
from typing import Any

import numpy as np

from compiler.runtime import cuda_runtime, graph_executor, load_module
from compiler.tvm_workarounds.fast_import import tvm
from scripts.gpu_kit.on_device import weights

FOLDER = pathlib.Path(os.environ["BATON_KIT_FOLDER"], "cases")
Result = dict[str, Any]


@functools.cache
def device() -> Any:
    """The GPU. Raises RuntimeError: there is none, or CUDA's libraries are missing."""
    lacking = cuda_runtime.prepare()
    found = tvm.cuda(0)
    if lacking is not None or not found.exist:
        raise RuntimeError(lacking or "there is no GPU that NVIDIA's driver knows of")
    return found


@functools.cache
def arch() -> str:
    """The architecture of the prebuilt libraries that this GPU runs: sm_90 or sm_80.

    Newer GPUs than sm_90's compile the PTX that is in the libraries, too.
    """
    major = int(str(device().compute_version).partition(".")[0])
    return "sm_90" if major >= 9 else "sm_80"


def library(case: str) -> str:
    """Path of a case's library for this GPU: with a Hopper's own instructions where there is one.

    Raises FileNotFoundError: the case is for other GPUs.
    """
    own = ["sm_90a"] if str(device().compute_version) == "9.0" else []
    paths = [FOLDER / f"{case}-{name}.so" for name in (*own, arch())]
    for path in paths:
        if path.exists():
            return str(path)
    raise FileNotFoundError(f"none of {', '.join(path.name for path in paths)}")


def listed(case: str) -> Result:
    """Entry of a case in the kit's list, by name and dtype: "model_minilm float16"."""
    for each in json.loads((FOLDER / "cases.json").read_text()):
        if case in (each["case"], f"{each['case']} {each.get('dtype')}"):
            return each
    raise KeyError(f"the kit has no case {case}")


def values(case: str) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """Inputs by name, and expected results."""
    with np.load(FOLDER / f"{case}.npz") as kept:
        inputs = {key.removeprefix("in "): kept[key] for key in kept if key.startswith("in ")}
        outputs = [kept[f"out {at}"] for at in range(len(kept.files) - len(inputs))]
    return inputs, outputs


def judged(found: list[np.ndarray], expected: list[np.ndarray], tolerance: float) -> Result:
    """Whether results are right: their greatest difference relative to the greatest result."""
    difference = 0.0
    for got, wanted in zip(found, expected, strict=True):
        if got.shape != wanted.shape:
            return {"status": "wrong", "because": f"shape {got.shape}, not {wanted.shape}"}
        off = np.abs(got.astype("float64") - wanted.astype("float64"))
        if not np.isfinite(off).all():
            count = int((~np.isfinite(off)).sum())
            return {"status": "wrong", "because": f"{count} of {off.size} results are not finite"}
        difference = max(difference, float(off.max() / max(1e-30, np.abs(wanted).max())))
    status = "right" if difference <= tolerance else "wrong"
    return {"status": status, "difference": difference, "tolerance": tolerance}


def family(case: str) -> Result:
    """A kernel of one family, called with tensors on the GPU."""
    try:
        path = library(case)
    except FileNotFoundError as error:
        return {"status": "skipped", "because": str(error)}
    return compared(case, tvm.runtime.load_module(path))


def compared(case: str, library: Any) -> Result:
    """Compare the results of a family's library with the CPU's."""
    said = listed(case)
    inputs, expected = values(case)
    gpu = device()
    given = [
        _tensor(value, dtype, gpu)
        for value, dtype in zip(inputs.values(), said["dtypes"], strict=False)
    ]
    poison = np.full(said["shape"], -1 if "int" in said["dtypes"][-1] else np.nan, "float32")
    out = tvm.runtime.empty(said["shape"], said["dtypes"][-1], gpu)
    if said["dtypes"][-1] != "bfloat16":
        out.copyfrom(poison.astype(said["dtypes"][-1]))
    library["kernel"](*given, out)
    gpu.sync()
    found = _numpy(out)
    tolerance = max(said["tolerance"], 1e-6)
    wanted = expected[0].astype("float64")
    off = np.abs(found.astype("float64") - wanted) / (1 + np.abs(wanted))
    worst = float(off.max()) if np.isfinite(off).all() else float("inf")
    status = "right" if worst <= tolerance else "wrong"
    return {"status": status, "difference": worst, "tolerance": tolerance}


def _tensor(value: np.ndarray, dtype: str, gpu: Any) -> Any:
    if dtype == "bfloat16":
        import ml_dtypes

        value = value.view(ml_dtypes.bfloat16)
    return tvm.runtime.tensor(value, gpu)


def _numpy(tensor: Any) -> np.ndarray:
    found: np.ndarray = tensor.numpy()
    return found.astype("float32") if found.dtype.kind not in "fiu" else found


def network(case: str) -> Result:
    """A small network with its weights inside, run four times; a graph replays the later ones."""
    said = listed(case)
    inputs, expected = values(case)
    library = load_module(str(FOLDER / f"{case}-{arch()}.so"))
    return _run(library, inputs, expected, said["tolerance"])


def _run(library: Any, inputs: Any, expected: list[np.ndarray], tolerance: float) -> Result:
    module = graph_executor.GraphModule(library["default"](device()))
    used = []
    for _ in range(5):
        module.run(**inputs)
        device().sync()
        used.append(memory_in_use())
    found = [module.get_output(at).numpy() for at in range(module.get_num_outputs())]
    grown = used[-1] - used[2]
    result = judged(found, expected, tolerance)
    if grown > 0:
        result.update(status="wrong", because=f"runs allocate: {grown} bytes more")
    return {**result, "allocated_later": grown, "notes": library.metadata.report["notes"]}


def memory_in_use() -> int:
    """Bytes of the GPU's memory that are not free, by CUDA's runtime."""
    from compiler.runtime import cuda_files

    name = "libcudart.so.13"
    runtime = ctypes.CDLL(cuda_files.library(name) or name)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    runtime.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total))
    return total.value - free.value


@functools.lru_cache(maxsize=1)
def sources(case: str) -> dict[str, np.ndarray]:
    """Initializers of a model: seeded ones are made here, the others come along."""
    seeded = json.loads((FOLDER / f"{case}.graph.json").read_text())["seeded"]
    with np.load(FOLDER / f"{case}-sources.npz") as kept:
        given = {name: kept[name] for name in kept}
    made = {name: weights.seeded(name, info) for name, info in seeded.items() if name not in given}
    return {**made, **given}


def model_library(case: str, dtype: str) -> Any:
    """A model's library with its weights.

    Raises ValueError: a weight is not what it was where the library was built.
    """
    stem = f"{case}-{dtype}-{arch()}"
    said = json.loads((FOLDER / f"{stem}.json").read_text())
    with np.load(FOLDER / f"{stem}.npz") as kept:
        arrays = {name: kept[name] for name in kept}
    made = {}
    for name, recipe in said["recipes"].items():
        value = weights.apply_recipe(recipe, sources(case), arrays)
        if weights.digest(value) != said["digests"][name]:
            raise ValueError(f"weight {name} is not the builder's: another numpy?")
        made[name] = tvm.runtime.tensor(value, tvm.cpu())
    library = load_module(str(FOLDER / f"{stem}.so"))
    library.load_late_bound_consts_from_map(made)
    return library


def model(case: str, dtype: str) -> Result:
    """One of the six models in one dtype, compared with the CPU's float32."""
    said = listed(f"{case} {dtype}")
    inputs, expected = values(case)
    return _run(model_library(case, dtype), inputs, expected, said["tolerance"])


def sanitized(cases: list[str]) -> Result:
    """Several families in one process, for compute-sanitizer, which slows its start."""
    wrong = [case for case in cases if family(case)["status"] == "wrong"]
    return {"status": "wrong" if wrong else "right", "wrong": wrong, "kernels": len(cases)}


def exported(case: str) -> Result:
    """Load a library, export it again, load that, and run it."""
    said = listed(case)
    inputs, expected = values(case)
    path = FOLDER / f"{case}-again.so"
    load_module(str(FOLDER / f"{case}-{arch()}.so")).export_library(str(path))
    return _run(load_module(str(path)), inputs, expected, said["tolerance"])
