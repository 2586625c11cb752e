"""TensorFlow Lite models for tests, written with the flatbuffers that the format is defined by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flatbuffers
import numpy as np
import tflite

_TYPES = {"float32": 0, "int32": 2, "uint8": 3, "int64": 4, "bool": 6, "int16": 7, "int8": 9}

Numbers = tuple[Sequence[float], Sequence[int], int]
"""Scales, zero points, and the axis along which they stand."""


class ModelWriter:
    """Collects tensors and operators of one graph; `finish` gives the file's bytes."""

    def __init__(self) -> None:
        self._builder = flatbuffers.Builder(1024)
        self._buffers: list[bytes] = [b""]
        self._tensors: list[tuple[str, tuple[int, ...], str, int, Numbers | None]] = []
        self._codes: list[int] = []
        self._operators: list[int] = []

    def tensor(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: str = "float32",
        numbers: Numbers | None = None,
    ) -> int:
        """An input, an output or a value between operators."""
        self._tensors.append((name, shape, dtype, 0, numbers))
        return len(self._tensors) - 1

    def constant(self, name: str, value: np.ndarray, numbers: Numbers | None = None) -> int:
        """A weight."""
        self._buffers.append(value.tobytes())
        place = len(self._buffers) - 1
        self._tensors.append((name, value.shape, str(value.dtype), place, numbers))
        return len(self._tensors) - 1

    def operator(
        self, code: str, inputs: Sequence[int], outputs: Sequence[int], kind: str, **options: Any
    ) -> None:
        """One operator; `kind` names its options' table, "Conv2DOptions"."""
        builder = self._builder
        number = getattr(tflite.BuiltinOperator, code)
        if number not in self._codes:
            self._codes.append(number)
        vectors = {
            name: builder.CreateNumpyVector(np.asarray(value, "int32"))
            for name, value in options.items()
            if isinstance(value, (list, tuple))
        }
        getattr(tflite, f"{kind}Start")(builder)
        for name, value in options.items():
            getattr(tflite, f"{kind}Add{name}")(builder, vectors.get(name, value))
        made = getattr(tflite, f"{kind}End")(builder)
        given = builder.CreateNumpyVector(np.asarray(inputs, "int32"))
        results = builder.CreateNumpyVector(np.asarray(outputs, "int32"))
        tflite.OperatorStart(builder)
        tflite.OperatorAddOpcodeIndex(builder, self._codes.index(number))
        tflite.OperatorAddInputs(builder, given)
        tflite.OperatorAddOutputs(builder, results)
        tflite.OperatorAddBuiltinOptionsType(builder, getattr(tflite.BuiltinOptions, kind))
        tflite.OperatorAddBuiltinOptions(builder, made)
        self._operators.append(tflite.OperatorEnd(builder))

    def finish(self, inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
        """The model's file."""
        builder = self._builder
        tensors = self._vector([self._tensor(*each) for each in self._tensors])
        operators = self._vector(self._operators)
        graph_inputs = builder.CreateNumpyVector(np.asarray(inputs, "int32"))
        graph_outputs = builder.CreateNumpyVector(np.asarray(outputs, "int32"))
        tflite.SubGraphStart(builder)
        tflite.SubGraphAddTensors(builder, tensors)
        tflite.SubGraphAddInputs(builder, graph_inputs)
        tflite.SubGraphAddOutputs(builder, graph_outputs)
        tflite.SubGraphAddOperators(builder, operators)
        graphs = self._vector([tflite.SubGraphEnd(builder)])
        codes = self._vector([self._code(number) for number in self._codes])
        buffers = self._vector([self._buffer(data) for data in self._buffers])
        tflite.ModelStart(builder)
        tflite.ModelAddVersion(builder, 3)
        tflite.ModelAddOperatorCodes(builder, codes)
        tflite.ModelAddSubgraphs(builder, graphs)
        tflite.ModelAddBuffers(builder, buffers)
        builder.Finish(tflite.ModelEnd(builder), b"TFL3")
        return bytes(builder.Output())

    def _vector(self, offsets: Sequence[int]) -> int:
        self._builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self._builder.PrependUOffsetTRelative(offset)
        return self._builder.EndVector()

    def _quantization(self, numbers: Numbers) -> int:
        builder, (scales, zeros, axis) = self._builder, numbers
        scale = builder.CreateNumpyVector(np.asarray(scales, "float32"))
        zero = builder.CreateNumpyVector(np.asarray(zeros, "int64"))
        tflite.QuantizationParametersStart(builder)
        tflite.QuantizationParametersAddScale(builder, scale)
        tflite.QuantizationParametersAddZeroPoint(builder, zero)
        tflite.QuantizationParametersAddQuantizedDimension(builder, axis)
        return tflite.QuantizationParametersEnd(builder)

    def _tensor(
        self, name: str, shape: tuple[int, ...], dtype: str, buffer: int, numbers: Numbers | None
    ) -> int:
        builder = self._builder
        quantization = self._quantization(numbers) if numbers is not None else None
        text = builder.CreateString(name)
        extents = builder.CreateNumpyVector(np.asarray(shape, "int32"))
        tflite.TensorStart(builder)
        tflite.TensorAddName(builder, text)
        tflite.TensorAddShape(builder, extents)
        tflite.TensorAddType(builder, _TYPES[dtype])
        tflite.TensorAddBuffer(builder, buffer)
        if quantization is not None:
            tflite.TensorAddQuantization(builder, quantization)
        return tflite.TensorEnd(builder)

    def _code(self, number: int) -> int:
        tflite.OperatorCodeStart(self._builder)
        tflite.OperatorCodeAddDeprecatedBuiltinCode(self._builder, min(number, 127))
        tflite.OperatorCodeAddBuiltinCode(self._builder, number)
        tflite.OperatorCodeAddVersion(self._builder, 1)
        return tflite.OperatorCodeEnd(self._builder)

    def _buffer(self, data: bytes) -> int:
        values = self._builder.CreateByteVector(data) if data else None
        tflite.BufferStart(self._builder)
        if values is not None:
            tflite.BufferAddData(self._builder, values)
        return tflite.BufferEnd(self._builder)
