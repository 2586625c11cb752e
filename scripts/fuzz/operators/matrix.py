"""Products, attention and recurrent layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..draft import Draft, Shape


def matmul(d: Draft, op: str) -> None:
    x = d.tensor(d.allowed(op), lambda s: len(s) >= 1 and 0 not in s, lambda: d.shape(1, 4))
    shape = d.shape_of(x)
    d.add(op, [x, d.like(x, _factor(d, shape), reuse=0.2)])


def _factor(d: Draft, shape: Shape) -> Shape:
    """The shape of a right operand that fits a left one."""
    if d.chance(0.1):
        return (shape[-1],)
    batch: Shape = ()
    if len(shape) > 2 and d.chance(0.5):
        batch = tuple(1 if d.chance(0.3) else n for n in shape[:-2])
    elif d.chance(0.15):
        batch = (d.extent(3),)
    return (*batch, shape[-1], d.extent())


def gemm(d: Draft, op: str) -> None:
    x = d.tensor(d.allowed(op), lambda s: len(s) == 2 and 0 not in s, lambda: d.shape(2, 2))
    shape = d.shape_of(x)
    trans_a, trans_b = d.one_of([0, 0, 1]), d.one_of([0, 1])
    rows, inner = (shape[1], shape[0]) if trans_a else shape
    columns = d.extent()
    y = d.like(x, (columns, inner) if trans_b else (inner, columns))
    bias = []
    if d.opset < 11 or d.chance(0.7):
        bias = [d.like(x, d.one_of([(rows, columns), (columns,), (1, columns), (rows, 1), ()]))]
    scale = d.one_of([None, 0.5]) if d.dtype_of(x).startswith("float") else None
    d.add(op, [x, y, *bias], transA=trans_a, transB=trans_b, alpha=scale, beta=scale)


def matmul_integer(d: Draft, op: str) -> None:
    m, k, n = (d.integer(1, 8) for _ in range(3))
    x = d.new(d.one_of(["uint8", "int8"]), (*([2] if d.chance(0.2) else []), m, k))
    y = d.new(d.one_of(["uint8", "int8"]), (k, n))
    zeros = []
    if d.chance(0.6):
        zeros = [d.fixed(d.integer(0, 5), d.dtype_of(x))]
        if d.chance(0.6):
            zeros.append(d.fixed(d.integer(0, 5), d.dtype_of(y)))
    d.add(op, [x, y, *zeros])


EQUATIONS = (
    *("ij,jk->ik", "bij,bjk->bik", "ij->ji", "ii->i", "ii", "i,i", "i,j->ij", "bij,kj->bik"),
    *("bhid,bhjd->bhij", "...ij,...jk->...ik", "ij->", "ij->j", "bij->bj", "bij,bij->b"),
    *("i,ij,j", "ijk,jl->ilk", "ab,ab->ab", "ij,ij->ji"),
)


def einsum(d: Draft, op: str) -> None:
    equation = d.one_of(EQUATIONS)
    extents = {label: d.integer(1, 4) for label in "abhijkld"}
    dtype = d.dtype(d.allowed(op))
    operands = []
    for side in equation.split("->")[0].split(","):
        batch = (2, 3) if side.startswith("...") else ()
        shape = (*batch, *(extents[label] for label in side.replace("...", "")))
        operands.append(d.new(dtype, shape))
    d.add(op, operands, equation=equation)


def attention(d: Draft, op: str) -> None:
    batch, length, keys = d.integer(1, 2), d.integer(1, 5), d.integer(1, 6)
    kv_heads, size = d.one_of([1, 2]), d.one_of([2, 4, 8])
    heads = kv_heads * d.integer(1, 2)
    dtype = d.dtype(d.allowed(op))
    flat = d.chance(0.4)

    def operand(count: int, steps: int) -> str:
        shape = (batch, steps, count * size) if flat else (batch, count, steps, size)
        return d.new(dtype, shape)

    inputs = [operand(heads, length), operand(kv_heads, keys), operand(kv_heads, keys)]
    if d.chance(0.5):
        mask = d.one_of([(length, keys), (batch, 1, length, keys), (1, heads, length, keys)])
        inputs.append(d.new(d.one_of(["bool", dtype]), mask))
    attributes: dict[str, Any] = {"is_causal": d.one_of([None, 0, 1])}
    if flat:
        attributes.update(q_num_heads=heads, kv_num_heads=kv_heads)
    if d.chance(0.2):
        attributes["scale"] = 0.7
    if d.chance(0.2):
        attributes["softcap"] = 2.0
    d.add(op, inputs, **attributes)


def rotary_embedding(d: Draft, op: str) -> None:
    batch, heads, steps, size = (
        d.integer(1, 2),
        d.integer(1, 3),
        d.integer(1, 4),
        2 * d.integer(1, 4),
    )
    dtype = d.dtype(d.allowed(op))
    x = d.new(dtype, (batch, heads, steps, size))
    interleaved = d.one_of([None, 0, 1])
    if d.chance(0.5):
        caches = [d.new(dtype, (8, size // 2), "unit") for _ in range(2)]
        d.add(op, [x, *caches, d.index(0, 7, (batch, steps))], interleaved=interleaved)
    else:
        caches = [d.new(dtype, (batch, steps, size // 2), "unit") for _ in range(2)]
        d.add(op, [x, *caches], interleaved=interleaved)


def recurrent(d: Draft, op: str) -> None:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    steps, batch, inputs, hidden = (
        d.integer(1, 4),
        d.integer(1, 3),
        d.integer(1, 5),
        d.integer(1, 5),
    )
    direction = d.one_of([None, "forward", "reverse", "bidirectional"])
    layers = 2 if direction == "bidirectional" else 1
    dtype = d.dtype(("float32",))
    # onnxruntime has no other layout, and the reference evaluator no other attributes with it.
    layout = d.one_of([None, 0, 0, 1]) if d.opset >= 14 else None
    x = d.new(dtype, (batch, steps, inputs) if layout else (steps, batch, inputs), constant=0)
    operands = [
        x,
        d.new(dtype, (layers, gates * hidden, inputs), constant=0.8),
        d.new(dtype, (layers, gates * hidden, hidden), constant=0.8),
    ]
    state: Shape = (batch, layers, hidden) if layout else (layers, batch, hidden)
    optional: list[Callable[[], str]] = [
        lambda: d.new(dtype, (layers, 2 * gates * hidden)),
        lambda: d.fixed(d.rng.integers(1, steps + 1, batch), "int32", 0.5),
        lambda: d.new(dtype, state),
    ]
    if op == "LSTM":
        optional += [lambda: d.new(dtype, state), lambda: d.new(dtype, (layers, 3 * hidden))]
    chosen = [make() if d.chance(p) else "" for make, p in zip(optional, (0.6, 0.2, 0.4, 0.3, 0.2))]
    while chosen and not chosen[-1]:
        chosen.pop()
    attributes: dict[str, Any] = {}
    if not layout:
        attributes["clip"] = d.one_of([None, None, None, 1.5])
    if not layout and d.chance(0.25):
        names = ["Relu", "Tanh", "Sigmoid", "HardSigmoid", "Softsign", "Softplus"]
        count = {"RNN": 1, "GRU": 2, "LSTM": 3}[op]
        attributes["activations"] = [d.one_of(names) for _ in range(count)] * layers
    if op == "GRU" and not layout:
        attributes["linear_before_reset"] = d.one_of([None, 0, 1])
    if op == "LSTM" and not layout:
        attributes["input_forget"] = d.one_of([None, 0, 0, 1])
    wanted = [d.chance(0.7), True, *([d.chance(0.5)] if op == "LSTM" else [])]
    d.add(
        op,
        [*operands, *chosen],
        wanted,
        hidden_size=hidden,
        direction=direction,
        layout=layout,
        **attributes,
    )


MAKERS: dict[str, Callable[[Draft, str], None]] = {
    **dict.fromkeys(("GRU", "LSTM", "RNN"), recurrent),
    "Attention": attention,
    "Einsum": einsum,
    "Gemm": gemm,
    "MatMul": matmul,
    "MatMulInteger": matmul_integer,
    "RotaryEmbedding": rotary_embedding,
}
