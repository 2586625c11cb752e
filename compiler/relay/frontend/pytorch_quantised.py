"""Quantised programs of torch.export: `quantized_decomposed`'s operators as ONNX's.

PyTorch's exporter knows those of quantised modules, eager and FX, and none of these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from compiler.errors import UnsupportedOperatorError


class _Linear(torch.autograd.Function):
    """Runs a call; the export sees one node of data, scale and zero point."""

    @staticmethod
    def forward(
        ctx: Any, run: Callable[..., torch.Tensor], kind: str, axis: int, *tensors: torch.Tensor
    ) -> torch.Tensor:
        return run(*tensors)

    @staticmethod
    def symbolic(g: Any, run: Any, kind: str, axis: int, *tensors: Any) -> Any:
        return g.op(kind, *tensors, axis_i=axis)


def _converted(kind: str) -> Callable[[Any, Sequence[Any], Any], torch.Tensor]:
    """A call of one of the operators as a node of this kind."""

    def call(op: Any, args: Sequence[Any], kwargs: Any) -> torch.Tensor:
        names = [argument.name for argument in op._schema.arguments]
        given = {**dict(zip(names, args)), **kwargs}
        data, dtype = given["input"], given["dtype"]
        numbers = [given[name] for name in names if name.startswith(("scale", "zero_point"))]
        scale = torch.as_tensor(numbers[0], dtype=torch.float32)
        zero = numbers[1] if numbers[1] is not None else torch.zeros_like(scale)
        zero = torch.as_tensor(zero).to(dtype)

        def run(data: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor) -> torch.Tensor:
            if "axis" not in given:
                return op(data, *args[1:], **kwargs)
            return op(data, scale, zero.to(torch.int64), *args[3:], **kwargs)

        result = _Linear.apply(run, kind, given.get("axis", 1), data, scale, zero)
        info, least, most = torch.iinfo(dtype), given["quant_min"], given["quant_max"]
        if kind == "QuantizeLinear" and (least > info.min or most < info.max):
            result = torch.clamp(result, least, most)
        if (given.get("out_dtype") or torch.float32) != torch.float32:
            raise UnsupportedOperatorError(
                f"{op._schema.name} has out_dtype {given['out_dtype']}; dequantise to float32"
            )
        return result

    return call


REWRITTEN = {
    f"quantized_decomposed::{way}_{scales}": _converted(kind)
    for way, kind in (("quantize", "QuantizeLinear"), ("dequantize", "DequantizeLinear"))
    for scales in ("per_tensor", "per_channel")
}
"""By the operators' names: (operator, arguments, keyword arguments) to the result."""
