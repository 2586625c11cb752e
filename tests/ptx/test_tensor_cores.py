"""Matrix instructions of a warp against the products of whole matrices."""

import numpy as np
import pytest

from tests.ptx import Output, run
from tests.ptx.numbers import decode, encode
from tests.ptx.program import BYTES
from tests.ptx.test_interpreter import REGISTERS

# Places of the fragments' elements, from the figures of NVIDIA's PTX ISA: (row, column) of
# element i of a lane, for a of 16 x k, for b of k x 8 and for c of 16 x 8.
A = {
    16: lambda g, t, i: (g + 8 * (i // 2 % 2), t * 2 + i % 2 + 8 * (i // 4)),
    32: lambda g, t, i: (g + 8 * (i % 2), t + 4 * (i // 2)),
    8: lambda g, t, i: (g + 8 * (i // 4 % 2), t * 4 + i % 4 + 16 * (i // 8)),
}
B = {
    16: lambda g, t, i: (t * 2 + i % 2 + 8 * (i // 2), g),
    32: lambda g, t, i: (t + 4 * i, g),
    8: lambda g, t, i: (t * 4 + i % 4 + 16 * (i // 4), g),
}


def c_place(g, t, i):
    return g + 8 * (i // 2), t * 2 + i % 2


def fragments(matrix, place, count):
    """(lane, element) of a matrix."""
    return np.array([[matrix[place(n // 4, n % 4, i)] for i in range(count)] for n in range(32)])


def words(values, kind):
    """Registers, lane by lane, from values lane by lane."""
    bits = encode(values.reshape(-1), kind).reshape(values.shape)
    return np.ascontiguousarray(bits).view("uint32")


def kernel(instruction, counts):
    """A kernel of one warp: registers from memory, the instruction, registers to memory."""
    na, nb, nc, nd = counts
    names = [f"%r{i}" for i in range(10, 10 + na + nb + nc)]
    loads = "\n".join(f"ld.global.u32 {name}, [%a1+{4 * i}];" for i, name in enumerate(names))
    stores = "\n".join(f"st.global.u32 [%a2+{4 * i}], %r{i + 1};" for i in range(nd))
    a, b, c = names[:na], names[na : na + nb], names[na + nb :]
    d = [f"%r{i + 1}" for i in range(nd)]
    vectors = ", ".join("{" + ", ".join(part) + "}" for part in (d, a, b, c))
    return f"""
.visible .entry k(.param .u64 x, .param .u64 y) {{
    {REGISTERS}
    ld.param.u64 %a1, [x];
    ld.param.u64 %a2, [y];
    mov.u32 %r0, %laneid;
    mad.wide.u32 %a1, %r0, {4 * len(names)}, %a1;
    mad.wide.u32 %a2, %r0, {4 * nd}, %a2;
    {loads}
    {instruction} {vectors};
    {stores}
    ret;
}}
"""


CASES = [
    ("m16n8k16", "f32", "f16", "f32"),
    ("m16n8k16", "f16", "f16", "f16"),
    ("m16n8k8", "f32", "f16", "f32"),
    ("m16n8k16", "f32", "bf16", "f32"),
    ("m16n8k8", "f32", "tf32", "f32"),
    ("m16n8k4", "f32", "tf32", "f32"),
    ("m16n8k32", "s32", "s8", "s32"),
    ("m16n8k16", "s32", "u8", "s32"),
]


@pytest.mark.parametrize(("shape", "d", "ab", "c"), CASES)
def test_products_of_tiles(shape, d, ab, c):
    k = int(shape.rpartition("k")[2])
    rng = np.random.default_rng(0)
    if ab in ("s8", "u8"):
        low, high = (-128, 128) if ab == "s8" else (0, 256)
        a, b = rng.integers(low, high, (16, k)), rng.integers(low, high, (k, 8))
        start = rng.integers(-1000, 1000, (16, 8))
    else:
        a, b, start = (rng.uniform(-1, 1, size) for size in ((16, k), (k, 8), (16, 8)))
        a, b = (decode(encode(x.reshape(-1), ab), ab).reshape(x.shape) for x in (a, b))
        start = decode(encode(start.reshape(-1), c), c).reshape(start.shape)
    bits = 8 * BYTES[ab]
    na, nb, nc = 16 * k // 32, 8 * k // 32, 4
    registers = np.concatenate(
        [
            words(fragments(a, A[bits], na), ab),
            words(fragments(b, B[bits], nb), ab),
            words(fragments(start, c_place, nc), c),
        ],
        axis=1,
    )
    per = 4 // BYTES[ab]
    counts = (na // per, nb // per, 4 * BYTES[c] // 4, 4 * BYTES[d] // 4)
    text = kernel(f"mma.sync.aligned.{shape}.row.col.{d}.{ab}.{ab}.{c}", counts)
    outcome = run(text, "k", (1,), (32,), [registers, Output((32, counts[3]), "uint32")])
    assert not outcome.problems
    expected = fragments(a.astype("float64") @ b.astype("float64") + start, c_place, 4)
    found = decode(outcome.outputs[0].reshape(-1).view(f"u{BYTES[d]}"), d).reshape(32, 4)
    tolerance = {"f16": 2e-3, "f32": 1e-6, "s32": 0}[d]
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix(count, transposed):
    names = [f"%r{i + 10}" for i in range(count)]
    stores = "\n".join(f"st.global.u32 [%a2+{4 * i}], {name};" for i, name in enumerate(names))
    trans = ".trans" if transposed else ""
    text = f"""
.visible .entry k(.param .u64 x, .param .u64 y) {{
    {REGISTERS}
    .shared .align 16 .b8 tile[512];
    ld.param.u64 %a1, [x];
    ld.param.u64 %a2, [y];
    mov.u32 %r0, %laneid;
    mad.wide.u32 %a1, %r0, 16, %a1;
    mad.wide.u32 %a2, %r0, {4 * count}, %a2;
    ld.global.v4.u32 {{%r1, %r2, %r3, %r4}}, [%a1];
    mov.u32 %r5, tile;
    mad.lo.s32 %r5, %r0, 16, %r5;
    st.shared.v4.u32 [%r5], {{%r1, %r2, %r3, %r4}};
    bar.sync 0;
    and.b32 %r6, %r0, {8 * count - 1};
    mov.u32 %r7, tile;
    mad.lo.s32 %r6, %r6, 16, %r7;
    ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{", ".join(names)}}}, [%r6];
    {stores}
    ret;
}}
"""
    tiles = np.arange(4 * 64, dtype="uint16").reshape(4, 8, 8)
    output = Output((32, count, 2), "uint16")
    outcome = run(text, "k", (1,), (32,), [tiles, output])
    assert not outcome.problems
    for lane in range(32):
        for i in range(count):
            tile = tiles[i].T if transposed else tiles[i]
            expected = tile[lane // 4, lane % 4 * 2 : lane % 4 * 2 + 2]
            np.testing.assert_array_equal(outcome.outputs[0][lane, i], expected)
