"""Operators of onnxruntime's own domain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..draft import Draft, Shape
from ..known import names
from .spatial import draw_window

DOMAIN = "com.microsoft"
ACTIVATIONS = ("Relu", "Tanh", "Sigmoid", "LeakyRelu")


def add(d: Draft, op: str, inputs: list[str], outputs: int = 1, **attributes: Any) -> None:
    """Append a node of the domain; `op` names it in front."""
    d.add(op.removeprefix(f"{DOMAIN}."), inputs, outputs, domain=DOMAIN, **attributes)


def activation(d: Draft, op: str) -> None:
    hidden = d.one_of([1, 4, 8, 16])
    x = d.new("float32", (*(d.integer(1, 4) for _ in range(d.integer(1, 2))), hidden))
    bias = op.endswith("BiasGelu") or (op.endswith("FastGelu") and d.chance(0.5))
    alpha = d.one_of([None, 0.5]) if op.endswith(("QuickGelu", "ScaledSiLU")) else None
    add(d, op, [x, *([d.new("float32", (hidden,))] if bias else [])], alpha=alpha)


def skip_normalization(d: Draft, op: str) -> None:
    shape = (d.integer(1, 2), d.integer(1, 4), d.one_of([4, 8, 16]))
    most = 3 if op.endswith("SkipLayerNormalization") else 2
    rest = [d.new("float32", shape[-1:]) for _ in range(d.integer(1, most))]
    add(d, op, [d.new("float32", shape), d.new("float32", shape), *rest], epsilon=1e-5)


def fused_conv(d: Draft, op: str) -> None:
    window = draw_window(d, tuple(d.integer(2, 7) for _ in range(2)))
    channels, out = d.integer(1, 4), d.integer(1, 4)
    x = d.new("float32", (1, channels, *window.space))
    weights = d.new("float32", (out, channels, *window.kernel))
    bias = [d.new("float32", (out,))] if d.chance(0.5) else []
    name = d.one_of(ACTIVATIONS)
    parameters = [0.3] if name == "LeakyRelu" else None
    attributes = {**window.attributes, "activation": name, "activation_params": parameters}
    add(d, op, [x, weights, *bias], **attributes)


def fused_gemm(d: Draft, op: str) -> None:
    m, k, n = (d.integer(1, 6) for _ in range(3))
    left, right = d.integer(0, 1), d.integer(0, 1)
    x = d.new("float32", (k, m) if left else (m, k))
    y = d.new("float32", (n, k) if right else (k, n))
    bias = [d.new("float32", d.one_of([(n,), (m, n), (1,)]))] if d.chance(0.6) else []
    name = d.one_of(ACTIVATIONS)
    alpha = 0.3 if name == "LeakyRelu" else None
    attributes: dict[str, Any] = {"activation": name, "activation_alpha": alpha}
    add(d, op, [x, y, *bias], transA=left, transB=right, alpha=d.one_of([None, 0.5]), **attributes)


def fused_matmul(d: Draft, op: str) -> None:
    m, k, n = (d.integer(1, 6) for _ in range(3))
    batch: Shape = (d.integer(1, 3),) if d.chance(0.5) else ()
    left, right = d.integer(0, 1), d.integer(0, 1)
    x = d.new("float32", (*batch, k, m) if left else (*batch, m, k))
    y = d.new("float32", (*batch, n, k) if right else (*batch, k, n))
    add(d, op, [x, y], transA=left, transB=right, alpha=d.one_of([None, 0.5]))


def attention(d: Draft, op: str) -> None:
    batch, rows, heads, columns = d.integer(1, 2), d.integer(1, 4), d.integer(1, 3), d.integer(1, 4)
    hidden = heads * columns
    mask = []
    if d.chance(0.6):
        mask = [d.fixed(d.rng.integers(0, 2, (batch, rows)), "int32", 0.3)]
    if op.endswith("MultiHeadAttention"):
        operands = [d.new("float32", (batch, rows, hidden)) for _ in range(3)]
    else:
        operands = [d.new("float32", (batch, rows, 5)), d.new("float32", (5, 3 * hidden))]
    bias = d.new("float32", (3 * hidden,))
    unidirectional = d.one_of([None, 0, 1])
    add(d, op, [*operands, bias, *mask], num_heads=heads, unidirectional=unidirectional)


def rotary_embedding(d: Draft, op: str) -> None:
    batch, rows, heads, half = d.integer(1, 2), d.integer(1, 4), d.integer(1, 3), d.integer(1, 4)
    x = d.new("float32", (batch, rows, heads * half * 2))
    tables = [d.new("float32", (8, half)) for _ in range(2)]
    positions = d.index(0, 7, (batch, rows))
    add(d, op, [x, positions, *tables], interleaved=d.one_of([None, 0, 1]))


def _scale(d: Draft) -> str:
    return d.fixed(d.rng.uniform(0.02, 0.5), "float32")


def _parameters(d: Draft, dtype: str) -> list[str]:
    return [_scale(d), d.fixed(d.integer(0, 4), dtype)]


def quantized(d: Draft, op: str) -> None:
    dtype = d.one_of(["uint8", "int8"])
    shape = tuple(d.integer(1, 4) for _ in range(d.integer(2, 3)))
    name = op.removeprefix(f"{DOMAIN}.QLinear")
    x = [d.new(dtype, shape), *_parameters(d, dtype)]
    y = _parameters(d, dtype)
    if name in ("Add", "Mul"):
        add(d, op, [*x, d.new(dtype, shape), *_parameters(d, dtype), *y])
    elif name == "Where":
        condition = d.new("bool", shape)
        add(d, op, [condition, *x, d.new(dtype, shape), *_parameters(d, dtype), *y])
    elif name == "Concat":
        other = [d.new(dtype, shape), *_parameters(d, dtype)]
        add(d, op, [*y, *x, *other], axis=d.axis(len(shape)))
    else:
        add(d, op, [*x, *y], alpha=0.3 if name == "LeakyRelu" else None)


def quantized_gemm(d: Draft, op: str) -> None:
    m, k, n = (d.integer(1, 6) for _ in range(3))
    x, y = d.new("uint8", (m, k)), d.new("int8", (k, n))
    if op.endswith("QGemm"):
        bias = d.new("int32", (n,))
        add(d, op, [x, *_parameters(d, "uint8"), y, *_parameters(d, "int8"), bias])
    elif op.endswith("DynamicQuantizeMatMul"):
        add(d, op, [d.new("float32", (m, k)), y, *_parameters(d, "int8")])
    else:
        zeros = [d.fixed(d.integer(0, 4), dtype) for dtype in ("uint8", "int8")]
        add(d, op, [x, y, _scale(d), _scale(d), *zeros])


def packed_matmul(d: Draft, op: str) -> None:
    m, n, blocks, bits = d.integer(1, 4), d.integer(1, 6), d.integer(1, 3), d.one_of([4, 8])
    k = 16 * blocks - d.one_of([0, 0, 5])
    codes = d.fixed(d.rng.integers(0, 256, (n, blocks, 2 * bits)), "uint8")
    scales = d.fixed(d.rng.uniform(0.01, 0.1, (n, blocks)), "float32")
    x = d.new("float32", (m, k))
    add(d, op, [x, codes, scales], K=k, N=n, block_size=16, bits=bits)


def single(d: Draft, op: str) -> None:
    """Operators of one matrix or two."""
    m, n = d.integer(1, 5), d.integer(1, 5)
    x = d.new("float32", (m, n))
    name = op.removeprefix(f"{DOMAIN}.")
    if name == "CDist":
        metric = d.one_of([None, "euclidean"])
        add(d, op, [x, d.new("float32", (d.integer(1, 5), n))], metric=metric)
    elif name == "ExpandDims":
        add(d, op, [x, d.fixed(d.integer(0, 2), "int32", 1.0)])
    elif name == "GatedAdd":
        add(d, op, [x, d.like(x, (m, n)), d.like(x, (m, 1))])
    elif name == "Pad":
        pads = d.fixed(d.rng.integers(0, 3, 4), constant=1.0)
        add(d, op, [x, pads], mode=d.one_of([None, "constant", "edge"]))
    elif name == "Trilu":
        add(d, op, [x, d.fixed(d.integer(-2, 2), constant=1.0)], upper=d.one_of([None, 0, 1]))
    elif name == "UnfoldTensor":
        add(d, op, [x], dim=d.one_of([0, 1, -1]), size=1, step=d.integer(1, 2))
    elif name == "GridSample":
        image = d.new("float32", (1, m, n, d.integer(1, 4)))
        grid = d.fixed(d.rng.uniform(-1.2, 1.2, (1, 2, 3, 2)).round(2), "float32")
        add(d, op, [image, grid], align_corners=d.one_of([None, 1]))
    else:
        add(d, op, [x])


MAKERS: dict[str, Callable[[Draft, str], None]] = {
    f"{DOMAIN}.{name}": maker
    for operators, maker in (
        ("BiasGelu FastGelu Gelu QuickGelu ScaledSiLU", activation),
        ("SkipLayerNormalization SkipSimplifiedLayerNormalization", skip_normalization),
        ("FusedConv", fused_conv),
        ("FusedGemm", fused_gemm),
        ("FusedMatMul TransposeMatMul", fused_matmul),
        ("Attention MultiHeadAttention", attention),
        ("RotaryEmbedding", rotary_embedding),
        (
            "QLinearAdd QLinearMul QLinearWhere QLinearConcat QLinearLeakyRelu "
            "QLinearSigmoid QLinearGlobalAveragePool",
            quantized,
        ),
        ("DynamicQuantizeMatMul MatMulIntegerToFloat QGemm", quantized_gemm),
        ("MatMulNBits", packed_matmul),
        ("CDist ExpandDims GatedAdd GridSample Pad SampleOp Trilu UnfoldTensor", single),
    )
    for name in names(operators)
}

_GPU = """
BiasAdd BiasDropout BiasSoftmax BiasSplitGelu BitmaskBiasDropout BitmaskDropout ComplexMul
ComplexMulConj FusedMatMulActivation GemmFastGelu GemmaRotaryEmbedding GroupNorm Irfft IsAllFinite
MulInteger NhwcConv NhwcFusedConv QLinearReduceMean ReduceSumInteger Rfft SkipGroupNorm SwiGLU
TorchEmbedding
"""
_LIKE = """
ConvTransposeWithDynamicPads DequantizeLinear GatherND MatMulInteger16 NhwcMaxPool
QLinearAveragePool QLinearConv QuantizeLinear Range
"""

NOT_DRAWN = {
    **{f"{DOMAIN}.{name}": "onnxruntime has it for GPUs only" for name in names(_GPU)},
    **{f"{DOMAIN}.{name}": "ONNX's operator of that kind is drawn" for name in names(_LIKE)},
    **{
        f"{DOMAIN}.{name}": "operands are caches or packed tables"
        for name in names(
            "DecoderMaskedMultiHeadAttention EmbedLayerNormalization GatedRMSNorm "
            "GatherBlockQuantized GroupQueryAttention MatMulBnb4 NGramRepeatBlock QAttention "
            "QEmbedLayerNormalization"
        )
    },
    f"{DOMAIN}.QLinearSoftmax": "onnxruntime's table of exponentials may be a step off",
    **{f"{DOMAIN}.{name}": "operands must be constant" for name in names("Inverse Unique")},
    **{
        f"{DOMAIN}.nchwc.{name}": "weights are in the order of this CPU"
        for name in names(
            "AveragePool Conv GlobalAveragePool GlobalMaxPool MaxPool ReorderInput ReorderOutput "
            "Upsample"
        )
    },
}
"""Operators that the importer knows and the generator leaves out, and why."""
