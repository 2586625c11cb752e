#!/usr/bin/env python3
"""Quantize ONNX models with onnxruntime's own quantizer, to repeat measurements of integers with.

    python -m scripts.models.quantized FOLDER MODEL.onnx [...] [--kinds qdq qoperator ...]

Statically quantized networks (QDQ and QOperator) have uint8 activations and int8 weights with a
scale for each channel; their ranges come from seeded random inputs. Dynamically quantized ones
have int8 weights. Of the kind f16 are models of halves. MODEL_KIND.onnx is written for each.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process
from onnxruntime.transformers.float16 import convert_float_to_float16

from scripts.models.random_inputs import random_inputs

KINDS = ("qdq", "qoperator", "dynamic", "f16")
SAMPLES = 4


class RandomInputs(CalibrationDataReader):
    """Seeded inputs of a model: normally distributed floats, small integers, masks of ones."""

    def __init__(self, model: onnx.ModelProto, count: int = SAMPLES) -> None:
        rng = np.random.default_rng(0)
        self._feeds = iter([random_inputs(model, rng) for _ in range(count)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        """The next sample by input's name; None behind the last."""
        return next(self._feeds, None)


def quantize(model: Path, folder: Path, kinds: Sequence[str] = KINDS) -> list[Path]:
    """Write a model in the kinds asked for; returns the paths."""
    written = []
    with tempfile.TemporaryDirectory() as scratch:
        prepared = Path(scratch) / "prepared.onnx"
        quant_pre_process(model, prepared, skip_symbolic_shape=True)
        for kind in kinds:
            path = folder / f"{model.stem}_{kind}.onnx"
            if kind == "f16":
                onnx.save(convert_float_to_float16(onnx.load(prepared)), path)
            elif kind == "dynamic":
                quantize_dynamic(prepared, path, weight_type=QuantType.QInt8)
            else:
                form = QuantFormat.QDQ if kind == "qdq" else QuantFormat.QOperator
                quantize_static(
                    prepared,
                    path,
                    RandomInputs(onnx.load(prepared)),
                    quant_format=form,
                    per_channel=True,
                    activation_type=QuantType.QUInt8,
                    weight_type=QuantType.QInt8,
                )
            written.append(path)
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for model in given.models:
        for path in quantize(model, given.folder, given.kinds):
            print(path)


if __name__ == "__main__":
    logging.getLogger().setLevel(logging.ERROR)  # the quantizer's, which is the root
    main()
