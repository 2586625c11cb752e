"""`baton quantize`: an ONNX model of floats as one of bytes, calibrated with samples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler.errors import InputError
from compiler.support.numpy_files import read_npy, read_npz
from compiler.support.regular_files import os_errors_as

from .completions import CALIBRATIONS
from .console import Steps, show, table
from .files import write_whole

if TYPE_CHECKING:
    from compiler.relay.quantize.ranges import Histogram

WEIGHT_BITS = (8, 7)


@dataclass(frozen=True)
class LayerError:
    """Error of quantization in one layer, over all samples."""

    layer: str
    operator: str
    # of_data, of_result: of the tensor that it reads and of its result: root of the mean squared
    # difference from the model of floats, relative to that of the float tensor itself
    of_data: float
    of_result: float
    # The root of the difference of their squares; 0 where the layer's result is nearer
    added: float


@dataclass(frozen=True)
class Quantized:
    """A model that was quantized."""

    path: str  # "" where the model was not kept
    samples: int
    layers: list[LayerError]  # in the model's order
    bytes_before: int  # bytes_before, bytes_after: of the files
    bytes_after: int

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists and numbers."""
        return asdict(self)


def quantize_model(
    model: Path,
    data: Path,
    output: Path,
    calibration: str,
    skipped: Sequence[str],
    shapes: Mapping[str, tuple[Any, ...]],
    steps: Steps,
    weight_bits: int = 8,
) -> Quantized:
    """Quantize a model's layers by the ranges that their data have over the samples.

    `data`: a folder of `.npz` files, each with the inputs by name, or of `.npy` files for a single
    one. `calibration`: one of `CALIBRATIONS`. `skipped`: layers that stay in float32, by their
    nodes' names. `weight_bits`: one of `WEIGHT_BITS`.
    Raises BatonError: the model or a sample can't be read, has no such layers or is not finite.
    """
    from compiler.relay.quantize.ranges import Histogram

    from . import quantize_onnx

    if calibration not in CALIBRATIONS:
        raise InputError(
            f"there is no calibration {calibration!r}; known: {', '.join(CALIBRATIONS)}"
        )
    if weight_bits not in WEIGHT_BITS:
        raise InputError(
            f"weights can have {' or '.join(map(str, WEIGHT_BITS))} bits, not {weight_bits}"
        )
    files = sample_files(data)
    before = quantize_onnx.folded(quantize_onnx.read_onnx(model))
    layers = quantize_onnx.find_layers(before, skipped)
    shown = list(dict.fromkeys(name for each in layers for name in (each.data, each.result)))
    inputs = [each.name for each in before.graph.input]
    inside = [name for name in shown if name not in inputs]
    with steps.step("build", "the model of floats"):
        floats = _Network(quantize_onnx.with_outputs(before, inside), inside, shapes)
    histograms = {each.data: Histogram(f"{each.data!r} of {model.name}") for each in layers}
    for sample in steps.progress("calibrate", files):
        values = floats.run(sample)
        for name, histogram in histograms.items():
            histogram.add(values[name])
    ranges = {name: _range(each, calibration) for name, each in histograms.items()}
    after = quantize_onnx.quantized(before, layers, ranges, weight_bits)
    with steps.step("build", "the model of bytes"):
        integers = _Network(quantize_onnx.with_outputs(after, inside), inside, shapes)
    errors = dict.fromkeys(shown, 0.0)
    sizes = dict.fromkeys(shown, 0.0)
    for sample in steps.progress("compare", files):
        expected, got = floats.run(sample), integers.run(sample)
        for name in shown:
            wide = expected[name].astype("float64")
            errors[name] += float(np.square(got[name] - wide).sum())
            sizes[name] += float(np.square(wide).sum())
    write_whole(output, lambda file: file.write(after.SerializeToString()))
    relative = {name: math.sqrt(errors[name] / (sizes[name] or 1.0)) for name in shown}
    found = [
        LayerError(
            each.name,
            each.operator,
            relative[each.data],
            relative[each.result],
            math.sqrt(max(relative[each.result] ** 2 - relative[each.data] ** 2, 0.0)),
        )
        for each in layers
    ]
    sizes_of_files = (model.stat().st_size, output.stat().st_size)
    return Quantized(str(output), len(files), found, *sizes_of_files)


def sample_files(folder: Path) -> list[Path]:
    """The samples in a folder, by name. Raises InputError: it is not a folder, or has none."""
    files = sorted(each for each in folder.glob("*.np[yz]")) if folder.is_dir() else []
    if not files:
        raise InputError(
            f"{str(folder)!r} is not a folder with samples: .npz files with an array for each "
            "input, or .npy files for a model with one input"
        )
    return files


def _range(histogram: Histogram, calibration: str) -> tuple[float, float]:
    most = {
        "minmax": lambda: histogram.largest,
        "percentile": histogram.percentile,
        "kl": histogram.least_divergence,
    }[calibration]()
    return max(histogram.least, -most), min(histogram.most, most)


class _Network:
    """A model that is built, and run for samples."""

    def __init__(self, model: Any, results: Sequence[str], shapes: Mapping[str, Any]) -> None:
        import tvm

        from compiler import relay
        from compiler.runtime import graph_executor

        mod, params = relay.frontend.from_onnx(model, shape=dict(shapes))
        with tvm.transform.PassContext(opt_level=3):
            library = relay.build(mod, "llvm", params=params)
        self._executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
        self._inputs = {each.name: each for each in library.metadata.inputs}
        self._results = results

    def run(self, path: Path) -> dict[str, np.ndarray]:
        """The results and the inputs by name, for the sample in a file."""
        sample = self._read(path)
        self._executor.run(**sample)
        got = {
            name: self._executor.get_output(place).numpy()
            for place, name in enumerate(self._results)
        }
        return {**sample, **got}

    def _read(self, path: Path) -> dict[str, np.ndarray]:
        with os_errors_as(InputError, f"can't read the sample {str(path)!r}"):
            arrays: Any = read_npz(path) if path.suffix == ".npz" else read_npy(path)
        if not isinstance(arrays, dict):
            arrays = dict.fromkeys(self._inputs, arrays) if len(self._inputs) == 1 else {}
        if arrays.keys() != self._inputs.keys():
            raise InputError(
                f"the sample {str(path)!r} has {', '.join(sorted(arrays)) or 'no names'}; the "
                f"model reads {', '.join(self._inputs)}"
            )
        return {name: np.asarray(array, self._inputs[name].dtype) for name, array in arrays.items()}


def show_quantized(result: Quantized) -> None:
    """Print a line per layer, and the sizes of the files."""
    show_layers(result)
    before, after = (f"{size / 1e6:.2f} MB" for size in (result.bytes_before, result.bytes_after))
    show(f"{result.path}: {after}, the model of floats has {before}")


def show_layers(result: Quantized) -> None:
    """Print the errors of each layer."""
    rows: Iterator[Any] = (
        (
            each.layer,
            each.operator,
            *(f"{share:.2%}" for share in (each.of_data, each.added, each.of_result)),
        )
        for each in result.layers
    )
    header = ("layer", "operator", "error of its data", "added", "error of its result")
    title = f"{len(result.layers)} layers on integers, {result.samples} samples"
    show(table(header, list(rows), title=title, numbers=3))
