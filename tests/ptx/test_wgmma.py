"""`wgmma` against products of whole matrices, and what its asynchronous execution forbids.

Layouts are written down here a second time, as the canonical layouts of NVIDIA's "Parallel Thread
Execution ISA" have them: shapes and strides in elements, and a swizzle of addresses.
"""

import functools

import numpy as np
import pytest

from compiler.target import nvcc
from tests.ptx import Updated, run, wgmma
from tests.ptx.numbers import decode, encode
from tests.ptx.program import BYTES
from tests.ptx.ptxas import NVCC

pytestmark = pytest.mark.skipif(NVCC is None, reason="needs nvcc")

MODES = {"none": 0, "128B": 1, "64B": 2, "32B": 3}
SWIZZLED_BITS = {"none": 0, "32B": 1, "64B": 2, "128B": 3}
SHARED = 64 * 1024

HEAD = """
typedef unsigned long long u64;
extern __shared__ __align__(1024) unsigned char tile[];
__device__ __forceinline__ u64 at(u64 fields, int start) {
  unsigned where = (unsigned)__cvta_generic_to_shared(tile) + start;
  return fields | (where & 0x3ffff) >> 4;
}
"""
KERNEL = """
extern "C" __global__ void __launch_bounds__(256)
{name}(const uint4* image, int chunks, u64 fields_a, int start_a, u64 fields_b, int start_b,
       int keep, const unsigned* fragments, {kind}* out) {{
  for (int i = threadIdx.x; i < chunks; i += blockDim.x) ((uint4*)tile)[i] = image[i];
  {kind} sums[{count}];
  unsigned a[4];
  for (int i = 0; i < 4; ++i) a[i] = fragments[threadIdx.x % 128 * 4 + i];
  for (int i = 0; i < {count}; ++i) sums[i] = out[threadIdx.x * {count} + i];
  {proxy}
  {barrier}
  u64 da = at(fields_a, start_a), db = at(fields_b, start_b);
  {more_before}
  asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{last}, 0;\\n"
               "{fence}\\n"
               "wgmma.mma_async.sync.aligned.m64n{n}k{k}.{types} "
               "{{{sums}}}, {a}, %{b}, p{signs};\\n"
               "wgmma.commit_group.sync.aligned; }}"
    : {outputs} : "l"(da), "l"(db), "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(keep)
    : "memory");
  {between}
  asm volatile("{wait}" : {outputs} :: "memory");
  {after}
  for (int i = 0; i < {count}; ++i) out[threadIdx.x * {count} + i] = sums[i];
}}
"""
PROXY = 'asm volatile("fence.proxy.async;" ::: "memory");'
BARRIER = "__syncthreads();"
FENCE = "wgmma.fence.sync.aligned;"
WAIT = "wgmma.wait_group.sync.aligned 0;"


def source(name, n=16, types="f32.f16.f16", signs=", 1, 1, 0, 0", registers=False, **parts):
    """CUDA C of a kernel of one instruction; `parts` replace what surrounds it."""
    k = 32 // BYTES[types.split(".")[1]]
    count, letter = n // 2, "f" if types.startswith("f32") else "r"
    first = count
    fragments = ", ".join(f"%{first + 2 + i}" for i in range(4))
    values = {
        "name": name,
        "n": n,
        "k": k,
        "types": types,
        "kind": "float" if letter == "f" else "int",
        "count": count,
        "sums": ", ".join(f"%{i}" for i in range(count)),
        "outputs": ", ".join(f'"+{letter}"(sums[{i}])' for i in range(count)),
        "a": f"{{{fragments}}}" if registers else f"%{first}",
        "b": first + 1,
        "last": first + 6,
        "signs": signs,
        **{"proxy": PROXY, "barrier": BARRIER, "fence": FENCE, "wait": WAIT},
        **{"between": "", "after": "", "more_before": ""},
    }
    return KERNEL.format(**{**values, **parts})


# types, n, (swizzle, is K-major) of a and of b, signs of a and b
PRODUCTS = {
    "half": ("f32.f16.f16", 64, ("128B", True), ("128B", True), (1, 1)),
    "half_64": ("f32.f16.f16", 8, ("64B", True), ("32B", True), (1, -1)),
    "half_plain": ("f32.f16.f16", 24, ("none", True), ("none", True), (1, 1)),
    "bfloat16_across": ("f32.bf16.bf16", 128, ("128B", False), ("128B", False), (1, 1)),
    "half_across_64": ("f32.f16.f16", 64, ("64B", False), ("32B", False), (-1, 1)),
    "half_across_plain": ("f32.f16.f16", 40, ("none", False), ("none", False), (1, 1)),
    "half_mixed": ("f32.f16.f16", 256, ("128B", True), ("128B", False), (-1, -1)),
    "tf32": ("f32.tf32.tf32", 32, ("32B", True), ("128B", True), (1, 1)),
    "int8": ("s32.s8.s8", 16, ("128B", True), ("64B", True), (1, 1)),
    "uint8": ("s32.u8.u8", 96, ("64B", True), ("none", True), (1, 1)),
}
REGISTERS = {
    "half_registers": ("f32.f16.f16", 16, ("128B", True)),
    "half_registers_across": ("f32.f16.f16", 64, ("128B", False)),
    "tf32_registers": ("f32.tf32.tf32", 16, ("128B", True)),
    "int8_registers": ("s32.s8.s8", 16, ("128B", True)),
}
STORE = "((float*)tile)[threadIdx.x] = 1;"
WRONG = {
    "right": ({}, None),
    "without_fence": ({"fence": ""}, "fence"),
    "without_proxy_fence": ({"proxy": ""}, "proxy"),
    "without_barrier": ({"barrier": ""}, "race"),
    "proxy_fence_after_the_barrier": ({"proxy": "", "more_before": PROXY}, "proxy"),
    "without_wait": ({"wait": ""}, "in flight"),
    "sums_touched": ({"between": "out[threadIdx.x] = sums[0];"}, "in flight"),
    "sums_changed_behind_the_fence": ({"fence": FENCE + " mov.f32 %0, 0f00000000;"}, "fence"),
    "tile_overwritten": ({"between": STORE}, "in flight"),
    "tile_overwritten_behind_a_barrier": ({"between": BARRIER + STORE}, "in flight"),
    "tile_overwritten_by_others": ({"after": "((float*)tile)[threadIdx.x ^ 1] = 1;"}, "race"),
    "tile_overwritten_later": ({"after": BARRIER + STORE}, None),
    "different_descriptors": ({"more_before": "da += threadIdx.x / 32 % 2 * 4;"}, "divergence"),
}


def signs_of(types, a, b, across_a, across_b):
    if not types.startswith("f32"):
        return ""
    transposes = f", {int(across_a)}, {int(across_b)}" if BYTES[types[-3:].strip(".")] == 2 else ""
    return f", {a}, {b}{transposes}"


@functools.cache
def module():
    """PTX of all kernels: a second of nvcc."""
    parts = [HEAD]
    for name, (types, n, (_, k_a), (_, k_b), (a, b)) in PRODUCTS.items():
        parts.append(source(name, n, types, signs_of(types, a, b, not k_a, not k_b)))
    for name, (types, n, (_, is_k_major)) in REGISTERS.items():
        signs = signs_of(types, 1, 1, False, not is_k_major)
        if ".f16" in types:
            signs = signs[: -len(", 0, 0")] + f", {int(not is_k_major)}"
        parts.append(source(name, n, types, signs, registers=True))
    for name, (changed, _) in WRONG.items():
        parts.append(source(name, **changed))
    return nvcc.compile_to_ptx("\n".join(parts), "sm_90a")


def strides(swizzle, is_k_major, kind, rows):
    """Bytes of the leading and the stride offset: matrices without gaps, leading ones behind."""
    span = {"none": 16, "32B": 32, "64B": 64, "128B": 128}[swizzle]
    if is_k_major:
        return (0, 8 * span) if swizzle != "none" else (rows * 16, 128)
    if swizzle == "none":
        return rows * 16, 128
    return 16 * span, 8 * span


def place(swizzle, is_k_major, kind, leading, stride, mn, k):
    """Byte of an element, counted from an address that is a multiple of 1024."""
    size = BYTES[kind]
    t = 16 // size
    lbo, sbo = leading // size, stride // size
    if is_k_major:
        atom = {"none": 1, "32B": 2, "64B": 4, "128B": 8}[swizzle]
        element = mn % 8 * atom * t + mn // 8 * sbo + k % t
        element += k // t * (lbo if swizzle == "none" else t)
    elif swizzle == "none":
        element = mn % t + mn // t * sbo + k % 8 * t + k // 8 * lbo
    else:
        atom = {"32B": 2, "64B": 4, "128B": 8}[swizzle]
        element = mn % (t * atom) + mn // (t * atom) * lbo + k % 8 * atom * t + k // 8 * sbo
    byte = element * size
    bits = SWIZZLED_BITS[swizzle]
    return byte ^ (byte >> 7 & ((1 << bits) - 1)) << 4


def fields(swizzle, leading, stride):
    mode = MODES[swizzle] - 4 * (MODES[swizzle] > 1)  # arguments are signed
    return mode << 62 | stride >> 4 << 32 | leading >> 4 << 16


def laid_out(image, start, matrix, kind, swizzle, is_k_major):
    """Write a matrix into the image of shared memory; its descriptor without the address."""
    leading, stride = strides(swizzle, is_k_major, kind, len(matrix))
    bits = encode(matrix.reshape(-1), kind).reshape(matrix.shape)
    for mn, k in np.ndindex(*matrix.shape):
        at = start + place(swizzle, is_k_major, kind, leading, stride, mn, k)
        image[at : at + BYTES[kind]] = bits[mn, k : k + 1].view(np.uint8)
    return fields(swizzle, leading, stride)


def values(rng, kind, *shape):
    if kind in ("s8", "u8"):
        return rng.integers(*((-128, 128) if kind == "s8" else (0, 256)), shape)
    found = rng.uniform(-1, 1, shape).astype("float32")
    return decode(encode(found.reshape(-1), kind), kind).reshape(shape)


def sum_places(n):
    """Row and column of each sum of each thread: figure "WGMMA .m64nNk16 register fragment D"."""
    thread, sum_ = np.arange(128)[:, None], np.arange(n // 2)
    row = 16 * (thread // 32) + thread % 32 // 4 + 8 * (sum_ // 2 % 2)
    return row, 8 * (sum_ // 4) + 2 * (thread % 4) + sum_ % 2


def launched(name, types, n, image, a, b, keep=1, fragments=None, threads=128):
    """`a` and `b` are a descriptor without its address, and where the matrix begins."""
    kind = "float32" if types.startswith("f32") else "int32"
    rng = np.random.default_rng(1)
    before = rng.integers(-4, 4, (threads, n // 2)).astype(kind)
    fragments = np.zeros((128, 4), "uint32") if fragments is None else fragments
    arguments = [image, len(image) // 16, *a, *b, keep, fragments, Updated(before)]
    outcome = run(module(), name, (1,), (threads,), arguments, SHARED)
    return before, outcome


def expected(a, b, before, n, keep):
    total = a.astype("float64") @ b.astype("float64").T
    return total[sum_places(n)] + (before if keep else 0)


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_shared_memory(name, keep):
    types, n, (swizzle_a, k_a), (swizzle_b, k_b), signs = PRODUCTS[name]
    kind = types.split(".")[1]
    k = 32 // BYTES[kind]
    rng = np.random.default_rng(0)
    a, b = values(rng, kind, 64, k), values(rng, kind, n, k)
    image = np.zeros(32 * 1024, np.uint8)
    first = (laid_out(image, 0, a, kind, swizzle_a, k_a), 0)
    second = (laid_out(image, 16384, b, kind, swizzle_b, k_b), 16384)
    before, outcome = launched(name, types, n, image, first, second, keep)
    assert [str(problem) for problem in outcome.problems] == []
    wanted = expected(signs[0] * a, signs[1] * b, before, n, keep)
    np.testing.assert_allclose(outcome.outputs[0], wanted, rtol=1e-6, atol=1e-6)


def test_descriptors_go_on_within_a_swizzled_row():
    """Steps of k: 32 bytes further within the 128 of a row, as CUTLASS and DeepGEMM do it."""
    rng = np.random.default_rng(0)
    a, b = values(rng, "f16", 64, 64), values(rng, "f16", 64, 64)
    image = np.zeros(32 * 1024, np.uint8)
    first = laid_out(image, 0, a, "f16", "128B", True)
    second = laid_out(image, 16384, b, "f16", "128B", True)
    for step in range(4):
        at = (first, 32 * step), (second, 16384 + 32 * step)
        before, outcome = launched("half", "f32.f16.f16", 64, image, *at)
        assert outcome.problems == []
        part = slice(16 * step, 16 * step + 16)
        wanted = expected(a[:, part], b[:, part], before, 64, True)
        np.testing.assert_allclose(outcome.outputs[0], wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", REGISTERS)
def test_products_of_registers(name):
    types, n, (swizzle, is_k_major) = REGISTERS[name]
    kind = types.split(".")[1]
    size = BYTES[kind]
    k, part = 32 // size, 4 // size
    rng = np.random.default_rng(0)
    a, b = values(rng, kind, 64, k), values(rng, kind, n, k)
    thread, element = np.arange(128)[:, None], np.arange(4 * part)
    register = element // part
    row = 16 * (thread // 32) + thread % 32 // 4 + 8 * (register % 2)
    column = thread % 4 * part + element % part + 4 * part * (register // 2)
    bits = encode(a[row, column].reshape(-1), kind).reshape(128, -1)
    image = np.zeros(16 * 1024, np.uint8)
    second = (laid_out(image, 0, b, kind, swizzle, is_k_major), 0)
    fragments = np.ascontiguousarray(bits).view("uint32")
    before, outcome = launched(name, types, n, image, (0, 0), second, 1, fragments)
    assert [str(problem) for problem in outcome.problems] == []
    wanted = expected(a, b, before, n, True)
    np.testing.assert_allclose(outcome.outputs[0], wanted, rtol=1e-6, atol=1e-6)


def small(name, threads=128, base=0, wrong=0):
    rng = np.random.default_rng(0)
    a, b = values(rng, "f16", 64, 16), values(rng, "f16", 16, 16)
    image = np.zeros(32 * 1024, np.uint8)
    first = laid_out(image, 0, a, "f16", "128B", True)
    second = laid_out(image, 16384, b, "f16", "128B", True)
    at = (first | base << 49, wrong), (second, 16384)
    return launched(name, "f32.f16.f16", 16, image, *at, threads=threads)[1]


@pytest.mark.parametrize("name", WRONG)
def test_mistakes_are_reported(name):
    kind = WRONG[name][1]
    kinds = {problem.kind for problem in small(name).problems}
    assert kind in kinds if kind else not kinds, kinds


def test_two_warpgroups_are_apart():
    assert small("right", 256).problems == []


def test_a_warpgroup_runs_it_together():
    kinds = {problem.kind for problem in small("right", 192).problems}
    assert "divergence" in kinds


@pytest.mark.parametrize("start", [256, 112])
def test_descriptors_that_do_not_fit_their_swizzle_are_reported(start):
    assert "alignment" in {problem.kind for problem in small("right", wrong=start).problems}


def test_a_base_offset_is_named():
    with pytest.raises(wgmma.PtxError, match="base offset"):
        small("right", base=1)


# The examples of the section "Canonical Layouts": offsets of chunks of 16 bytes in elements of
# 4 or 2 bytes, the encoded offsets, and which chunks (row or line, chunk) they are.
EXAMPLES = [
    (True, "none", 16, 8, {(1, 0): 4 * 4, (8, 0): 32 * 4, (0, 1): 64 * 4, (9, 1): 100 * 4}),
    (True, "32B", 1, 16, {(1, 0): 8 * 4, (8, 0): 64 * 4, (0, 1): 4 * 4, (4, 0): 36 * 4}),
    (False, "none", 16, 8, {(1, 0): 8 * 2, (0, 1): 64 * 2, (8, 0): 128 * 2, (9, 1): 200 * 2}),
    (False, "32B", 16, 32, {(1, 0): 16 * 2, (0, 1): 8 * 2, (0, 2): 128 * 2, (8, 0): 256 * 2}),
    (False, "64B", 32, 64, {(1, 0): 32 * 2, (0, 1): 8 * 2, (0, 4): 256 * 2, (8, 0): 512 * 2}),
]


@pytest.mark.parametrize(("is_k_major", "swizzle", "leading", "stride", "places"), EXAMPLES)
def test_examples_of_the_instruction_set(is_k_major, swizzle, leading, stride, places):
    descriptor = MODES[swizzle] << 62 | stride << 32 | leading << 16
    layout = wgmma.Layout.of(np.array([descriptor], np.uint64))
    rows = 16 if is_k_major else 64
    found = layout.chunks(rows, is_k_major)[0]
    assert not layout.misplaced(is_k_major).any()
    assert {at: int(found[at]) for at in places} == places
