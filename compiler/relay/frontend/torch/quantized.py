"""Operators of quantized programs that PyTorch's exporter does not know, as ONNX's.

It knows those of modules quantized with samples, eager and FX: left are `quantized_decomposed`'s,
of programs of torch.export, and layers that quantize what they read by its own range.
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
                f"{op._schema.name} has out_dtype {given['out_dtype']}; dequantize to float32"
            )
        return result

    return call


class _Dynamic(torch.autograd.Function):
    """A dense layer, of which a replay needs the shape; the export sees a product of integers."""

    @staticmethod
    def forward(
        ctx: Any, data: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor
    ) -> torch.Tensor:
        return data.new_zeros((*data.shape[:-1], weight.shape[1]))

    @staticmethod
    def symbolic(g: Any, data: Any, weight: Any, scale: Any) -> Any:
        integers, own, zero = g.op("DynamicQuantizeLinear", data, outputs=3)
        sums = g.op("Cast", g.op("MatMulInteger", integers, weight, zero), to_i=1)
        return g.op("Mul", sums, g.op("Mul", own, scale))


def _dynamic(has_relu: bool) -> Callable[[Any, Sequence[Any], Any], torch.Tensor]:
    """A dense layer whose data are quantized by their range, to 8 bits in any case."""

    def call(op: Any, args: Sequence[Any], kwargs: Any) -> torch.Tensor:
        data, packed = args[:2]
        integers, scale, zero, bias = _unpacked(packed)
        if torch.any(zero != 0):
            raise UnsupportedOperatorError(
                f"{op._schema.name}: its weights have a zero point beside 0"
            )

        result = _Dynamic.apply(data, integers, scale)
        result = result if bias is None else result + bias
        return torch.relu(result) if has_relu else result

    return call


def _unpacked(packed: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Int8 weights (inputs, outputs), scales, zero points and bias, as constants for a tracer."""
    tracing = torch._C._get_tracing_state()
    torch._C._set_tracing_state(None)
    try:
        weight, bias = packed.unpack()
        if weight.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
            scale, zero = torch.tensor(weight.q_scale()), torch.tensor(weight.q_zero_point())
        else:
            scale, zero = weight.q_per_channel_scales(), weight.q_per_channel_zero_points()
        return (
            weight.int_repr().t().contiguous(),
            scale.to(torch.float32),
            zero,
            None if bias is None else bias.detach(),
        )
    finally:
        torch._C._set_tracing_state(tracing)


REWRITTEN = {
    "quantized::linear_dynamic": _dynamic(has_relu=False),
    "quantized::linear_relu_dynamic": _dynamic(has_relu=True),
    **{
        f"quantized_decomposed::{way}_{scales}": _converted(kind)
        for way, kind in (("quantize", "QuantizeLinear"), ("dequantize", "DequantizeLinear"))
        for scales in ("per_tensor", "per_channel")
    },
}
"""Converters by operator name: (operator, arguments, keyword arguments) to the result."""
