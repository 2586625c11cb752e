"""Keys of every era of TVM: texts as its releases printed them, against the computes of today.

Placeholders, stages and axes changed their names; see `compiler/records/ansor/tvm_versions.py`. A
record is found if the hash of the old text is among those of a kernel's forms.
"""

from __future__ import annotations

import hashlib
import json

import pytest
from tvm import te, topi
from tvm.target import Target

from compiler.auto_scheduler import ApplyHistoryBest
from compiler.records.ansor.compute_variants import candidates
from compiler.records.ansor.dag import read_dag
from compiler.records.ansor.dag_text import dag_text
from compiler.records.ansor.match import matches
from compiler.records.ansor.tvm_versions import namings


def tensors(*shapes):
    return [te.placeholder(shape, "float32", f"x{i}") for i, shape in enumerate(shapes)]


def product(x, y):
    """What today's operator makes of a matrix product, perhaps of batches."""
    k = te.reduce_axis((0, x.shape[-1]), "k")
    if len(x.shape) == 2:
        shape = (x.shape[0], y.shape[1])
        return te.compute(shape, lambda i0, i1: te.sum(x[i0, k] * y[k, i1], k), name="matmul")
    shape = (x.shape[0], x.shape[1], y.shape[2])
    return te.compute(
        shape, lambda i0, i1, i2: te.sum(x[i0, i1, k] * y[i0, k, i2], k), name="matmul"
    )


def dense(epilogue=lambda x: x):
    x, w = tensors((8, 16), (16, 4))
    return [x, w, epilogue(product(x, w))]


def dense_bias_tanh(tanh, bias=(4,)):
    x, w, b = tensors((8, 16), (16, 4), bias)
    return [x, w, b, tanh(topi.add(product(x, w), b))]


def batched(batch):
    x, w = tensors((batch, 8, 16), (batch, 16, 4))
    return [x, w, product(x, w)]


def scores():
    x, w = tensors((2, 8, 16), (2, 16, 4))
    return [x, w, topi.divide(product(x, w), te.const(4.0, "float32"))]


def convolution(groups=1, ending=topi.nn.relu, residual=False):
    weight = (3, 3, 8 // groups, 8)
    x, w, b, r = tensors((1, 6, 6, 8), weight, (1, 1, 1, 8), (1, 6, 6, 8))
    value = topi.add(topi.nn.conv(x, w, 1, 1, 1, groups, "NHWC", "HWIO"), b)
    if residual:
        return [x, w, b, r, ending(topi.add(value, r))]
    return [x, w, b, ending(value)]


def clip(x):
    return topi.clip(x, 0.0, 6.0)


def pooled(kind):
    (x,) = tensors((1, 6, 6, 8))
    if kind == "global":
        return [x, topi.nn.adaptive_pool(x, (1, 1), "avg", "NHWC")]
    padding = (1, 1, 1, 1) if kind == "max" else (0, 0, 0, 0)
    pool = topi.nn.pool2d(
        x, [2, 2], [2, 2], [1, 1], padding, kind, layout="NHWC", count_include_pad=False
    )
    return [x, pool]


def softmax(function):
    (x,) = tensors((8, 16))
    return [x, function(x, -1)]


def variance():
    x, mean = tensors((8, 16), (8, 1))
    difference = topi.subtract(x, mean)
    total = topi.sum(topi.multiply(difference, difference), -1, keepdims=True)
    return [x, mean, topi.divide(total, te.const(16.0, "float32"))]


OLD_X, OLD_W = ["placeholder = PLACEHOLDER "] * 2
NHWC = "nn, yy, xx, ff"
AX4 = "ax0, ax1, ax2, ax3"


def conv_text(pad, conv, taps=("ry", "rx"), names=("p0", "p1", "p2", "p3"), residual=False):
    x, w, b, r = names
    ry, rx = taps
    lines = [
        f"{x} = PLACEHOLDER ",
        f"{pad}(i0, i1, i2, i3) = Op(tir.if_then_else)",
        f"{w} = PLACEHOLDER ",
        f"{conv}({NHWC}) += ({pad}[nn, (yy + {ry}), (xx + {rx}), rc]*{w}[{ry}, {rx}, rc, ff])",
        f"{b} = PLACEHOLDER ",
        f"T_add({AX4}) = ({conv}[{AX4}] + {b}[ax0, 0, 0, ax3])".replace("[ax0, 0", "[ax0, 0"),
    ]
    last = "T_add"
    if residual:
        lines += [f"{r} = PLACEHOLDER ", f"T_add({AX4}) = (T_add[{AX4}] + {r}[{AX4}])"]
    return [*lines, f"T_relu({AX4}) = max({last}[{AX4}], 0f)"]


def depthwise_text(names):
    x, w, b = names
    taps = "PaddedInput[b, (i + di), (j + dj), c]"
    return [
        f"{x} = PLACEHOLDER ",
        "PaddedInput(i0, i1, i2, i3) = Op(tir.if_then_else)",
        f"{w} = PLACEHOLDER ",
        f"DepthwiseConv2d(b, i, j, c) += ({taps}*{w}[di, dj, c, 0])",
        f"{b} = PLACEHOLDER ",
        f"T_add({AX4}) = (DepthwiseConv2d[{AX4}] + {b}[ax0, 0, 0, ax3])",
        "compute(i0, i1, i2, i3) = max(min(T_add[i0, i1, i2, i3], 6f), 0f)",
    ]


def pool_text(x, result, axes):
    rv0, rv1 = axes
    reads = f"pad_temp[ax0, ((ax1*2) + {rv0}), ((ax2*2) + {rv1}), ax3]"
    return [
        f"{x} = PLACEHOLDER ",
        f"pad_temp({AX4}) = Op(tir.if_then_else)",
        f"{result}({AX4}) max= {reads}",
    ]


OLD = ["placeholder"] * 4
FORMS = {
    "dense, January to June 2021": (
        dense, [OLD_X, OLD_W, "T_dense(i, j) += (placeholder[i, k]*placeholder[j, k])"],
    ),
    "dense, 0.8": (
        dense, [OLD_X, OLD_W, "T_matmul_NT(i, j) += (placeholder[i, k]*placeholder[j, k])"],
    ),
    "dense, 0.10": (
        dense,
        ["p0 = PLACEHOLDER ", "p1 = PLACEHOLDER ", "T_matmul_NT(i, j) += (p0[i, k]*p1[j, k])"],
    ),
    "dense, 0.18": (
        dense,
        ["p0 = PLACEHOLDER ", "p1 = PLACEHOLDER ",
         "T_matmul_NT(i0, i1) += (p0[i0, k]*p1[i1, k])"],
    ),
    "product with the weight as it is, and relu, 0.12": (
        lambda: dense(topi.nn.relu),
        ["p0 = PLACEHOLDER ", "p1 = PLACEHOLDER ", "T_matmul_NN(i, j) += (p0[i, k]*p1[k, j])",
         "T_relu(ax0, ax1) = max(T_matmul_NN[ax0, ax1], 0f)"],
    ),
    "dense with a bias that was not a constant, 0.8": (
        lambda: dense_bias_tanh(topi.tanh),
        [OLD_X, OLD_W, "T_matmul_NT(i, j) += (placeholder[i, k]*placeholder[j, k])",
         "placeholder = PLACEHOLDER ", "T_expand_dims(ax0, ax1) = placeholder[ax1]",
         "T_add(ax0, ax1) = (T_matmul_NT[ax0, ax1] + T_expand_dims[0, ax1])",
         "T_tanh(ax0, ax1) = Op(tir.tanh)"],
    ),
    "batched product, January to July 2021": (
        lambda: batched(2),
        [OLD_X, OLD_W, "compute(b, i, j) += (placeholder[b, i, k]*placeholder[b, j, k])"],
    ),
    "batched product, 0.8": (
        lambda: batched(2),
        [OLD_X, OLD_W,
         "T_batch_matmul_NT(b, i, j) += (placeholder[b, i, k]*placeholder[b, j, k])"],
    ),
    "batched product with the operand as it is, 0.12": (
        lambda: batched(2),
        ["p0 = PLACEHOLDER ", "p1 = PLACEHOLDER ",
         "T_batch_matmul_NN(b, i, j) += (p0[b, i, k]*p1[b, k, j])"],
    ),
    "product of a batch of one, 0.12": (
        lambda: batched(1),
        ["p0 = PLACEHOLDER ", "p1 = PLACEHOLDER ",
         "T_batch_matmul_NN(b, i, j) += (p0[0, i, k]*p1[0, k, j])"],
    ),
    "an attention's scores, 0.12": (
        scores,
        ["p0 = PLACEHOLDER ", "p1 = PLACEHOLDER ",
         "T_batch_matmul_NN(b, i, j) += (p0[b, i, k]*p1[b, k, j])",
         "T_divide(ax0, ax1, ax2) = (T_batch_matmul_NN[ax0, ax1, ax2]/4f)"],
    ),
    "convolution, 0.8": (convolution, conv_text("PaddedInput", "Conv2dOutput", names=OLD)),
    "convolution, January 2022": (
        convolution, conv_text("pad_temp", "conv2d_nhwc", ("r0", "r1"), OLD),
    ),
    "convolution, 0.9": (convolution, conv_text("pad_temp", "conv2d_nhwc", names=OLD)),
    "convolution, 0.18": (convolution, conv_text("pad_temp", "conv2d_nhwc")),
    "convolution with a residual, 0.8": (
        lambda: convolution(residual=True),
        conv_text("PaddedInput", "Conv2dOutput", names=OLD, residual=True),
    ),
    "convolution with a residual, 0.18": (
        lambda: convolution(residual=True),
        conv_text("pad_temp", "conv2d_nhwc", residual=True),
    ),
    "depthwise convolution and relu6, 0.9": (
        lambda: convolution(groups=8, ending=clip), depthwise_text(OLD[:3]),
    ),
    "depthwise convolution and relu6, 0.18": (
        lambda: convolution(groups=8, ending=clip), depthwise_text(("p0", "p1", "p2")),
    ),
    "maximum pooling, before May 2021": (
        lambda: pooled("max"), pool_text("placeholder", "tensor", ("dh", "dw")),
    ),
    "maximum pooling, 0.9": (
        lambda: pooled("max"), pool_text("placeholder", "tensor", ("rv0", "rv1")),
    ),
    "maximum pooling, 0.18": (
        lambda: pooled("max"), pool_text("p0", "pool_max", ("rv0", "rv1")),
    ),
    "average pooling without padding, 0.14": (
        lambda: pooled("avg"),
        ["p0 = PLACEHOLDER ",
         f"pool_sum({AX4}) += p0[ax0, ((ax1*2) + rv0), ((ax2*2) + rv1), ax3]",
         f"pool_avg({AX4}) = (pool_sum[{AX4}]/float32(max((((min(((ax1*2) + 1), 5) - ((ax1*2) + "
         "max((0 - (ax1*2)), 0))) + 1)*((min(((ax2*2) + 1), 5) - ((ax2*2) + "
         "max((0 - (ax2*2)), 0))) + 1)), 1)))"],
    ),
    "global average pooling, 0.9": (
        lambda: pooled("global"),
        ["placeholder = PLACEHOLDER ",
         f"tensor({AX4}) += placeholder[ax0, ((ax1*6) + rv0), ((ax2*6) + rv1), ax3]",
         f"tensor({AX4}) = (tensor[{AX4}]/(float32((select((bool)1, ((ax1 + 1)*6), "
         "(((ax1 + 1)*6) + 1)) - (ax1*6)))*float32((select((bool)1, ((ax2 + 1)*6), "
         "(((ax2 + 1)*6) + 1)) - (ax2*6)))))"],
    ),
    "softmax, 0.8": (
        lambda: softmax(topi.nn.softmax),
        ["placeholder = PLACEHOLDER ", "T_softmax_maxelem(i0) max= placeholder[i0, k]",
         "T_softmax_exp(i0, i1) = Op(tir.exp)",
         "T_softmax_expsum(i0) += T_softmax_exp[i0, k]",
         "T_softmax_norm(i0, i1) = (T_softmax_exp[i0, i1]/T_softmax_expsum[i0])"],
    ),
    "variance, 0.18": (
        variance,
        ["p0 = PLACEHOLDER ", "p1 = PLACEHOLDER ",
         "T_subtract(ax0, ax1) = (p0[ax0, ax1] - p1[ax0, 0])",
         "T_multiply(ax0, ax1) = (T_subtract[ax0, ax1]*T_subtract[ax0, ax1])",
         "T_multiply_red(ax0, ax1) += T_multiply[ax0, k1]",
         "T_divide(ax0, ax1) = (T_multiply_red[ax0, ax1]/16f)"],
    ),
}  # fmt: skip


def weights_of(tensors):
    """Positions of all operands but the first."""
    return frozenset(range(1, len(tensors) - 1))


def lines_of(tensors, known):
    """Texts of all forms of a compute in all eras."""
    dag = read_dag(te.create_prim_func(tensors))
    return [
        (candidate, dag_text(candidate.dag, names, candidate.texts))
        for candidate in candidates(dag, known)
        for names in namings(candidate.dag)
    ]


@pytest.mark.parametrize("name", FORMS)
def test_a_record_of_every_era_is_matched_by_its_hash(name, tmp_path):
    build, lines = FORMS[name]
    tensors, text = build(), "".join(f"{line}\n" for line in lines)
    known = frozenset() if "not a constant" in name else weights_of(tensors)
    forms = lines_of(tensors, known)
    found = [candidate for candidate, printed in forms if printed == text]
    assert found, forms[0][1]
    shapes = list(map(list, found[0].dag.operand_shapes))
    key = json.dumps([hashlib.md5(text.encode()).hexdigest(), *shapes])
    task = [key, "llvm -keys=cpu", [1, 64, 64, 0, 0, 0, 0, 0], "", 0, []]
    row = {"i": [task, [[], []]], "r": [[1e-3], 0, 0.1, 1], "v": "v0.6"}
    log = tmp_path / "era.json"
    log.write_text(json.dumps(row) + "\n")
    func = te.create_prim_func(tensors)
    match = next(matches(func, known, Target({"kind": "llvm"}), [ApplyHistoryBest(log)]))
    assert match.by_hash


def test_the_bounds_of_fast_tanh_changed_places():
    forms = lines_of(dense_bias_tanh(topi.fast_tanh, (1, 4)), frozenset([1, 2]))
    printed = [text for _, text in forms if "compile_engine_const" not in text]
    old = [text for text in printed if "placeholder = " in text]
    new = [text for text in printed if "p0 = " in text]
    assert old and all("= min(T_add[ax0, ax1], 9f)" in text for text in old)
    assert all("= max(T_minimum[ax0, ax1], -9f)" in text for text in old)
    assert new and all("= min(9f, T_add[ax0, ax1])" in text for text in new)


def test_shifts_are_printed_as_the_intrinsics_they_were():
    (_, text), *_ = lines_of(softmax(topi.nn.fast_softmax), frozenset())
    assert "T_softmax_delta(i0, i1) = (p0[i0, i1] - T_softmax_maxelem[i0])" in text
    assert "tir.reinterpret(tir.shift_left(int32((tir.floor(" in text
