"""The interpreter on small kernels that are right, and on the same ones with something missing."""

import numpy as np
import pytest

from tests.ptx import Output, PtxError, Updated, run

REGISTERS = """
    .reg .pred %p<9>;
    .reg .b16 %h<9>;
    .reg .b32 %r<40>;
    .reg .b64 %a<20>;
"""
# %a1 and %a2 are the arguments, %r1 is the thread, %a3 and %a4 its places of 4 bytes in them.
START = """
    ld.param.u64 %a1, [x];
    ld.param.u64 %a2, [y];
    cvta.to.global.u64 %a1, %a1;
    cvta.to.global.u64 %a2, %a2;
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %a5, %r1, 4;
    add.s64 %a3, %a1, %a5;
    add.s64 %a4, %a2, %a5;
    shl.b32 %r2, %r1, 2;
"""


def module(body, shared="", outside=""):
    return f"""
.version 9.0
.target sm_90
.address_size 64
{outside}
.visible .entry k(
    .param .u64 x,
    .param .u64 y
)
{{
    {REGISTERS}
    {shared}
    {START}
    {body}
    ret;
}}
"""


def launch(body, values, threads, shared="", output=None, grid=(1,), **options):
    output = output or Output((threads * grid[0],), "uint32")
    outside = options.pop("outside", "")
    return run(module(body, shared, outside), "k", grid, (threads,), [values, output], **options)


def kinds(outcome):
    return {problem.kind for problem in outcome.problems}


WORDS = np.arange(64, dtype="uint32") + 7
REVERSE = """
    mov.u32 %r3, buffer;
    add.s32 %r4, %r3, %r2;
    ld.global.nc.u32 %r5, [%a3];
    st.shared.u32 [%r4], %r5;
    bar.sync 0;
    sub.s32 %r6, 63, %r1;
    shl.b32 %r6, %r6, 2;
    add.s32 %r6, %r3, %r6;
    ld.shared.u32 %r7, [%r6];
    st.global.u32 [%a4], %r7;
"""
BUFFER = ".shared .align 4 .b8 buffer[256];"


def test_threads_exchange_by_shared_memory():
    outcome = launch(REVERSE, WORDS, 64, BUFFER)
    assert not outcome.problems
    np.testing.assert_array_equal(outcome.outputs[0], WORDS[::-1])


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("bar.sync 0;", "", "race"),
        ("buffer[256]", "buffer[128]", "bounds"),
        ("st.shared.u32 [%r4]", "st.shared.u32 [%r4+2]", "alignment"),
        ("st.shared.u32 [%r4]", "st.shared.u32 [%r3]", "race"),
        ("st.shared.u32 [%r4], %r5;", "", "uninitialized"),
        ("ld.global.nc.u32 %r5, [%a3]", "ld.global.nc.u32 %r5, [%a3+4]", "bounds"),
        ("st.global.u32 [%a4]", "st.global.u32 [%a3]", "input"),
        ("st.global.u32 [%a4]", "st.global.u32 [%a2]", "race"),
        ("st.global.u32 [%a4], %r7;", "", "unwritten"),
        ("bar.sync 0;", "setp.lt.u32 %p1, %r1, 32;\n @%p1 ret;\n bar.sync 0;", "divergence"),
    ],
)
def test_what_is_wrong_is_said(old, new, kind):
    assert old in REVERSE + BUFFER
    outcome = launch(REVERSE.replace(old, new), WORDS, 64, BUFFER.replace(old, new))
    assert kind in kinds(outcome)


def test_dynamic_shared_memory_ends_where_the_launch_says():
    outside = ".extern .shared .align 16 .b8 buffer[];"
    outcome = launch(REVERSE, WORDS, 64, outside=outside, dynamic_shared=256)
    assert not outcome.problems
    outcome = launch(REVERSE, WORDS, 64, outside=outside, dynamic_shared=252)
    assert "bounds" in kinds(outcome)


def test_a_warps_own_barrier_orders_its_threads_and_no_others():
    within_warps = REVERSE.replace("sub.s32 %r6, 63, %r1", "xor.b32 %r6, %r1, 31")
    synchronized = within_warps.replace("bar.sync 0", "bar.warp.sync 0xffffffff")
    outcome = launch(synchronized, WORDS, 64, BUFFER)
    assert not outcome.problems
    np.testing.assert_array_equal(outcome.outputs[0], WORDS[np.arange(64) ^ 31])
    outcome = launch(REVERSE.replace("bar.sync 0", "bar.warp.sync -1"), WORDS, 64, BUFFER)
    assert "race" in kinds(outcome)


def test_blocks_race_for_global_memory_even_with_barriers():
    body = """
    st.global.u32 [%a4], %r1;
    bar.sync 0;
    ld.global.u32 %r5, [%a4];
"""
    assert not launch(body, WORDS, 32).problems
    outcome = launch(body, WORDS, 32, output=Output((32,), "uint32"), grid=(2,))
    assert kinds(outcome) == {"race"}


COPY = """
    mov.u32 %r3, buffer;
    shl.b32 %r4, %r1, 4;
    add.s32 %r4, %r3, %r4;
    mul.wide.u32 %a6, %r1, 16;
    add.s64 %a6, %a1, %a6;
    cp.async.cg.shared.global [%r4], [%a6], 16;
    cp.async.commit_group;
    cp.async.ca.shared.global [%r4+1024], [%a3], 4;
    cp.async.commit_group;
    cp.async.wait_group 1;
    bar.sync 0;
    xor.b32 %r5, %r2, 4;
    add.s32 %r5, %r3, %r5;
    ld.shared.u32 %r6, [%r5];
    st.global.u32 [%a4], %r6;
"""
COPIED = ".shared .align 16 .b8 buffer[2048];"


def test_asynchronous_copies_are_there_after_their_wait_and_a_barrier():
    values = np.arange(256, dtype="uint32")
    outcome = launch(COPY, values, 64, COPIED)
    assert not outcome.problems
    np.testing.assert_array_equal(outcome.outputs[0], np.arange(64) ^ 1)


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("cp.async.wait_group 1;", "", "in flight"),
        ("cp.async.wait_group 1;", "cp.async.wait_group 2;", "in flight"),
        ("bar.sync 0;", "", "race"),
        ("[%r4], [%a6], 16", "[%r4+4], [%a6], 16", "alignment"),
        ("[%r5];", "[%r5+1024];", "in flight"),
    ],
)
def test_a_copy_that_is_not_waited_for_is_noticed(old, new, kind):
    values = np.arange(256, dtype="uint32")
    assert kind in kinds(launch(COPY.replace(old, new, 1), values, 64, COPIED))


def test_copies_fill_up_with_zeros():
    body = COPY.replace("[%r4], [%a6], 16", "[%r4], [%a6], 16, 8")
    outcome = launch(body, np.arange(256, dtype="uint32"), 64, COPIED)
    lane = np.arange(64) ^ 1
    np.testing.assert_array_equal(outcome.outputs[0], np.where(lane % 4 < 2, lane, 0))


@pytest.mark.parametrize(
    ("mode", "by", "clamp", "expected"),
    [
        ("down", 4, 31, lambda lane: np.where(lane + 4 < 32, lane + 4, lane)),
        ("up", 4, 0, lambda lane: np.where(lane >= 4, lane - 4, lane)),
        ("bfly", 9, 31, lambda lane: lane ^ 9),
        ("idx", 3, 31, lambda lane: 0 * lane + 3),
        # Widths of 8 lanes: what is beyond them stays.
        ("down", 6, (24 << 8) | 31, lambda lane: np.where(lane % 8 < 2, lane + 6, lane)),
        ("idx", 11, (24 << 8) | 31, lambda lane: lane // 8 * 8 + 3),
    ],
)
def test_shuffles(mode, by, clamp, expected):
    body = f"""
    shfl.sync.{mode}.b32 %r5|%p1, %r1, {by}, {clamp}, -1;
    st.global.u32 [%a4], %r5;
"""
    outcome = launch(body, WORDS, 32)
    np.testing.assert_array_equal(outcome.outputs[0], expected(np.arange(32)))
    assert not outcome.problems


def test_a_shuffle_waits_for_the_lanes_it_names():
    body = """
    setp.lt.u32 %p1, %r1, 16;
    @%p1 bra LOW;
    shfl.sync.bfly.b32 %r5, %r1, 1, 31, {mask};
    bra END;
LOW:
    shfl.sync.bfly.b32 %r5, %r1, 1, 31, 0xffff;
END:
    st.global.u32 [%a4], %r5;
"""
    assert not launch(body.format(mask="0xffff0000"), WORDS, 32).problems
    assert "divergence" in kinds(launch(body.format(mask="-1"), WORDS, 32))


def test_votes_and_reductions():
    body = """
    setp.ge.u32 %p1, %r1, 30;
    vote.sync.ballot.b32 %r5, %p1, -1;
    redux.sync.add.s32 %r6, %r1, -1;
    popc.b32 %r7, %r5;
    add.s32 %r8, %r6, %r7;
    st.global.u32 [%a4], %r8;
"""
    outcome = launch(body, WORDS, 32)
    np.testing.assert_array_equal(outcome.outputs[0], np.full(32, 496 + 2))


def test_atomics_see_one_another():
    body = """
    and.b32 %r5, %r1, 1;
    mul.wide.u32 %a6, %r5, 4;
    add.s64 %a6, %a2, %a6;
    atom.global.add.u32 %r6, [%a6], %r1;
    red.global.max.u32 [%a2+8], %r1;
"""
    start = Updated(np.zeros(3, "uint32"))
    outcome = run(module(body), "k", (2,), (64,), [WORDS, start])
    assert not outcome.problems
    np.testing.assert_array_equal(outcome.outputs[0], [2 * 992, 2 * 1024, 63])
    plain = body + "st.global.u32 [%a2], %r1;\n"
    assert "race" in kinds(run(module(plain), "k", (1,), (64,), [WORDS, start]))


def test_threads_that_part_meet_again():
    body = """
    mov.u32 %r5, 0;
    mov.u32 %r6, 0;
LOOP:
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra END;
    add.s32 %r6, %r6, %r5;
    add.s32 %r5, %r5, 1;
    bra LOOP;
END:
    bar.sync 0;
    st.global.u32 [%a4], %r6;
"""
    outcome = launch(body, WORDS, 64)
    assert not outcome.problems
    np.testing.assert_array_equal(outcome.outputs[0], [n * (n - 1) // 2 for n in range(64)])


def test_half_and_bfloat16_pairs_round_once():
    body = """
    ld.global.u32 %r5, [%a3];
    {.reg .b16 low, high; mov.b32 {low, high}, %r5; mov.b32 %r6, {high, low};}
    fma.rn.f16x2 %r7, %r5, %r6, %r5;
    st.global.u32 [%a4], %r7;
"""
    values = np.random.default_rng(0).uniform(-2, 2, (32, 2)).astype("float16")
    outcome = launch(body, values.view("uint32").reshape(-1), 32)
    wide = values.astype("float64")
    expected = (wide * wide[:, ::-1] + wide).astype("float16")
    np.testing.assert_array_equal(outcome.outputs[0].view("float16").reshape(32, 2), expected)
    body = """
    ld.global.f32 %r5, [%a3];
    cvt.rn.bf16.f32 %h1, %r5;
    cvt.u32.u16 %r6, %h1;
    st.global.u32 [%a4], %r6;
"""
    floats = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, -2.7, np.inf] * 8, "float32")
    found = launch(body, floats, 40).outputs[0] << 16
    nearest = np.array([1.0, 1.0, 1 + 2**-6, -2.703125, np.inf] * 8, "float32")
    np.testing.assert_array_equal(found.view("float32"), nearest)


@pytest.mark.parametrize(
    ("instruction", "a", "b", "expected"),
    [
        ("mul.lo.s32", "WARP_SZ", -3, -96),
        ("mul.hi.u32", 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFE),
        ("mul.hi.s32", 0xFFFFFFFF, 5, 0xFFFFFFFF),
        ("div.s32", -7, 2, -3),
        ("rem.s32", -7, 2, -1),
        ("shr.s32", -8, 40, -1),
        ("shr.u32", -8, 40, 0),
        ("min.s32", -8, 40, -8),
        ("max.u32", -8, 40, -8),
        ("min.f32", 0x7FC00000, 0x3F800000, 0x3F800000),
        ("max.NaN.f32", 0x7FC00000, 0x3F800000, 0x7FC00000),
    ],
)
def test_arithmetic(instruction, a, b, expected):
    body = f"""
    mov.b32 %r5, {a};
    mov.b32 %r6, {b};
    {instruction} %r7, %r5, %r6;
    st.global.u32 [%a4], %r7;
"""
    assert launch(body, WORDS, 1).outputs[0][0] == expected % 2**32


@pytest.mark.parametrize(
    ("stride", "width", "sectors"), [(4, 1, 4), (8, 1, 8), (32, 1, 32), (16, 4, 16), (0, 1, 1)]
)
def test_sectors_of_a_request_are_counted(stride, width, sectors):
    """`width` words of 4 bytes a thread, `stride` bytes apart; the store has a word a thread."""
    names = "{%r5, %r6, %r7, %r8}" if width == 4 else "%r5"
    body = f"""
    mul.wide.u32 %a6, %r1, {stride};
    add.s64 %a7, %a1, %a6;
    ld.global{".v4" if width == 4 else ""}.u32 {names}, [%a7];
    st.global.u32 [%a4], %r5;
"""
    traffic = launch(body, np.zeros(512, "uint32"), 32).traffic
    assert (traffic.requests, traffic.sectors) == (2, sectors + 4)
    assert traffic.block_sectors == sectors + 4
    assert traffic.shared_requests == 0


def test_a_block_counts_a_sector_once():
    body = """
    ld.global.u32 %r5, [%a1];
    ld.global.u32 %r6, [%a3];
    add.u32 %r5, %r5, %r6;
    st.global.u32 [%a4], %r5;
"""
    traffic = launch(body, np.zeros(64, "uint32"), 64).traffic
    assert (traffic.requests, traffic.sectors, traffic.block_sectors) == (6, 18, 16)


@pytest.mark.parametrize(("words", "waves"), [(1, 1), (2, 2), (32, 32), (33, 1), (0, 1)])
def test_bank_conflicts_are_counted(words, waves):
    """Threads whose words are `words` words apart."""
    body = f"""
    mov.u32 %r9, s;
    mad.lo.u32 %r9, %r1, {4 * words}, %r9;
    st.shared.u32 [%r9], %r1;
"""
    traffic = launch(body, WORDS, 32, shared=".shared .align 4 .b8 s[8192];").traffic
    assert (traffic.shared_requests, traffic.shared_waves) == (1, waves)


def test_what_is_not_known_is_named():
    with pytest.raises(PtxError, match=r"tcgen05\.alloc"):
        launch("tcgen05.alloc.cta_group::1.sync.aligned.b32 [%a0], 32;", WORDS, 32)
    with pytest.raises(PtxError, match="no kernel other; there are k"):
        run(module(""), "other", (1,), (1,), [])


def test_registers_of_an_inner_scope_and_comparisons_as_numbers():
    body = """
    ld.global.nc.u32 %r5, [%a3];
    {.reg.b16         h,r;
     cvt.u16.u32 h, %r5;
     {.reg .b16 r; mov.b16 r,0X5500U; set.eq.f16.f16 h,h,r; }
     cvt.f32.f16 %r6,h;
    }
    st.global.u32 [%a4], %r6;
    """
    values = np.array([80, 81], "float16").view("uint16").astype("uint32")
    outcome = launch(body, values, 2, output=Output((2,), "float32"))
    assert not outcome.problems
    np.testing.assert_array_equal(outcome.outputs[0], [1, 0])
