"""Tensors that `cp.async.bulk.tensor` copies, their barriers, and what they must not do."""

import functools

import numpy as np
import pytest

from compiler.target import nvcc
from tests.ptx import Output, TensorMap, run
from tests.ptx.ptxas import NVCC
from tests.ptx.test_wgmma import place, sum_places

pytestmark = pytest.mark.skipif(NVCC is None, reason="needs nvcc")
SHARED = 64 * 1024

HEAD = """
#include <cuda.h>
typedef unsigned long long u64;
extern __shared__ __align__(1024) unsigned char tile[];
__device__ __forceinline__ unsigned shared(const void* at) {
  return (unsigned)__cvta_generic_to_shared(at);
}
__device__ __forceinline__ void init(u64* bar, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(shared(bar)), "r"(count)
               : "memory");
}
__device__ __forceinline__ void fence_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void expect(u64* bar, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :: "r"(shared(bar)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copy(void* to, const CUtensorMap* map, int x, int y, u64* bar) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%2, %3}], [%4];"
               :: "r"(shared(to)), "l"(map), "r"(x), "r"(y), "r"(shared(bar)) : "memory");
}
__device__ __forceinline__ void wait(u64* bar, int parity) {
  unsigned done;
  do asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\\n"
                  "selp.u32 %0, 1, 0, p; }"
                  : "=r"(done) : "r"(shared(bar)), "r"(parity) : "memory");
  while (!done);
}
__device__ __forceinline__ void fence() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
"""
BOX = """
extern "C" __global__ void __launch_bounds__(128)
{name}(const __grid_constant__ CUtensorMap map, int x, int y, int bytes, int to, unsigned* out) {{
  __shared__ __align__(8) u64 bar;
  {before}
  if (threadIdx.x == 0) {{ {init} }}
  __syncthreads();
  if (threadIdx.x == 0) {{ {copy} }}
  {wait}
  for (int i = threadIdx.x; i < 1024; i += 128) out[i] = ((unsigned*)(tile + to))[i];
  {after}
}}
"""
PARTS = {
    "before": "",
    "init": "init(&bar, 1); fence_init();",
    "copy": "expect(&bar, bytes); copy(tile + to, &map, x, y, &bar);",
    "wait": "wait(&bar, 0);",
    "after": "",
}
AGAIN = "if (threadIdx.x == 0) copy(tile + to, &map, x, y, &bar);"
WRITE = "((unsigned*)tile)[threadIdx.x] = 1;"
CASES = {
    "right": ({}, None),
    "waited_for_by_one": ({"wait": "if (threadIdx.x == 0) wait(&bar, 0); __syncthreads();"}, None),
    "not_waited_for": ({"wait": ""}, "race"),
    "not_waited_for_by_all": ({"wait": "if (threadIdx.x < 64) wait(&bar, 0);"}, "race"),
    "wait_for_the_next_phase": ({"wait": "wait(&bar, 0); wait(&bar, 1);"}, "divergence"),
    "nothing_announced": (
        {"init": "init(&bar, 2); fence_init();", "copy": PARTS["copy"] + " expect(&bar, 1);"},
        "divergence",
    ),
    "too_little_announced": ({"copy": PARTS["copy"].replace("bytes", "bytes / 2")}, "mbarrier"),
    "init_without_fence": ({"init": "init(&bar, 1);"}, "mbarrier"),
    "no_init": ({"init": ""}, "mbarrier"),
    "overwritten_while_read": ({"after": AGAIN}, "race"),
    "overwritten_behind_a_barrier": ({"after": "__syncthreads();" + AGAIN}, None),
    "over_what_was_written": ({"before": WRITE}, "proxy"),
    "over_what_was_written_and_fenced": ({"before": WRITE + "fence();"}, None),
}
PIPELINE = """
extern "C" __global__ void __launch_bounds__(128)
product(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
        int steps, float* out) {{
  __shared__ __align__(8) u64 bars[2];
  if (threadIdx.x == 0) {{ init(bars, 1); init(bars + 1, 1); fence_init(); }}
  __syncthreads();
  float sums[32];
  for (int i = 0; i < 32; ++i) sums[i] = 0;
  if (threadIdx.x == 0) {{
    expect(bars, 16384);
    copy(tile, &a, 0, 0, bars);
    copy(tile + 8192, &b, 0, 0, bars);
  }}
  for (int step = 0; step < steps; ++step) {{
    int next = (step + 1) % 2;
    if (threadIdx.x == 0 && step + 1 < steps) {{
      expect(bars + next, 16384);
      copy(tile + next * 16384, &a, (step + 1) * 64, 0, bars + next);
      copy(tile + next * 16384 + 8192, &b, (step + 1) * 64, 0, bars + next);
    }}
    wait(bars + step % 2, step / 2 % 2);
    u64 fields = 1ull << 62 | 64ull << 32 | 1ull << 16;
    u64 da = fields | shared(tile + step % 2 * 16384) >> 4;
    u64 db = fields | shared(tile + step % 2 * 16384 + 8192) >> 4;
    asm volatile("wgmma.fence.sync.aligned;\\n"
{body}
                 "wgmma.commit_group.sync.aligned;\\n"
                 "wgmma.wait_group.sync.aligned 0;" : {outputs} : "l"(da), "l"(db),
                 "l"(da + 2), "l"(db + 2), "l"(da + 4), "l"(db + 4), "l"(da + 6), "l"(db + 6)
                 : "memory");
    {barrier}
  }}
  for (int i = 0; i < 32; ++i) out[threadIdx.x * 32 + i] = sums[i];
}}
"""


@functools.cache
def module():
    parts = [HEAD]
    for name, (changed, _) in CASES.items():
        parts.append(BOX.format(name=name, **{**PARTS, **changed}))
    sums = ", ".join(f"%{i}" for i in range(32))
    body = "\n".join(
        f'"wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {{{sums}}}, %{32 + 2 * i}, '
        f'%{33 + 2 * i}, 1, 1, 1, 0, 0;\\n"'
        for i in range(4)
    )
    outputs = ", ".join(f'"+f"(sums[{i}])' for i in range(32))
    for name, barrier in (("product", "__syncthreads();"), ("product_without_barrier", "")):
        text = PIPELINE.format(body=body, outputs=outputs, barrier=barrier)
        parts.append(text.replace("product(", f"{name}("))
    return nvcc.compile_to_ptx("\n".join(parts), "sm_90a")


def copied(name, values, box, swizzle, x=0, y=0, to=0):
    described = TensorMap(values, box, swizzle)
    size = box[0] * box[1] * values.itemsize
    arguments = [described, x, y, size, to, Output((1024,), "uint32")]
    return run(module(), name, (1,), (128,), arguments, SHARED)


@pytest.mark.parametrize(("x", "y"), [(0, 0), (16, 8), (-8, -3), (72, 30)])
@pytest.mark.parametrize(
    ("swizzle", "columns"), [("none", 64), ("128B", 64), ("64B", 32), ("32B", 16)]
)
def test_boxes_are_swizzled_and_zero_outside(swizzle, columns, x, y):
    values = np.arange(40 * 80, dtype="uint16").reshape(40, 80) + 1
    rows = 4096 // (columns * 2)
    outcome = copied("right", values, (rows, columns), swizzle, x, y)
    assert [str(problem) for problem in outcome.problems] == []
    found = outcome.outputs[0].view("uint16")
    padded = np.zeros((400, 400), "uint16")
    padded[100:140, 100:180] = values
    box = padded[100 + y : 100 + y + rows, 100 + x : 100 + x + columns]
    for row, column in np.ndindex(rows, columns):
        if swizzle == "none":
            at = row * columns + column
        else:
            at = place(swizzle, True, "f16", 0, 16 * columns, row, column) // 2
        assert found[at] == box[row, column]


@pytest.mark.parametrize("name", CASES)
def test_mistakes_are_reported(name):
    values = np.ones((32, 64), "uint16")
    kinds = {problem.kind for problem in copied(name, values, (32, 64), "128B").problems}
    kind = CASES[name][1]
    assert kind in kinds if kind else not kinds, kinds


def test_a_misaligned_copy_is_reported():
    problems = copied("right", np.ones((32, 64), "uint16"), (32, 64), "none", to=64).problems
    assert "alignment" in {problem.kind for problem in problems}


@pytest.mark.parametrize(
    ("box", "swizzle", "words"),
    [
        ((300, 64), "none", "1 to 256"),
        ((8, 20), "none", "16 bytes"),
        ((8, 32), "128B", "the swizzle 128"),
    ],
)
def test_maps_that_cuda_would_reject_are_errors(box, swizzle, words):
    with pytest.raises(ValueError, match=words):
        copied("right", np.ones((32, 64), "uint16"), box, swizzle)


@pytest.mark.parametrize("name", ["product", "product_without_barrier"])
def test_wgmma_multiplies_what_was_copied(name):
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(-1, 1, (64, 320)).astype("float16") for _ in range(2))
    maps = [TensorMap(each, (64, 64), "128B") for each in (a, b)]
    arguments = [*maps, 5, Output((128, 32), "float32")]
    outcome = run(module(), name, (1,), (128,), arguments, SHARED)
    if name == "product_without_barrier":
        assert "race" in {problem.kind for problem in outcome.problems}
        return
    assert [str(problem) for problem in outcome.problems] == []
    expected = (a.astype("float64") @ b.astype("float64").T)[sum_places(64)]
    np.testing.assert_allclose(outcome.outputs[0], expected, rtol=1e-5, atol=1e-5)
