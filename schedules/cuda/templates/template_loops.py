"""Steps that AutoTVM's CUDA templates share: tiles of threads, shared copies, unrolling.

A split of four factors makes the loops (block, virtual thread, thread, inner). The first factor
of a record is never used; a factor beyond the extent of a reduction is cut down to it, one of a
thread axis is guarded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...config import ConfigEntity, Knob, option, split


def split_threads(sch: Any, loop: Any, factors: Sequence[int]) -> list[Any]:
    """Loops of a spatial axis, outermost first, by a record's factors."""
    return list(sch.split(loop, [None, *factors[1:]]))


def split_reduction(sch: Any, loop: Any, factors: Sequence[int]) -> list[Any]:
    """Loops of a reduction axis; factors beyond the extent are cut down to it."""
    left = int(sch.get(loop).extent)
    inner: list[int] = []
    for factor in reversed(factors[1:]):
        inner.insert(0, min(factor, left))
        left = -(-left // inner[0])
    return list(sch.split(loop, [None, *inner]))


def bind_all(sch: Any, loops: Sequence[Any], tags: Sequence[str]) -> None:
    """Bind each loop to the thread tag at its place."""
    for loop, tag in zip(loops, tags, strict=True):
        sch.bind(loop, tag)


def bind_virtual(sch: Any, loops: Sequence[Any]) -> None:
    """Make virtual threads of neighboring loops; TVM knows three tags for them."""
    *first, y, x = loops
    bind_all(sch, [sch.fuse(*first), y, x], ("vthread.z", "vthread.y", "vthread.x"))


def accumulate_in_registers(sch: Any, anchor: Any, loop: Any) -> list[Any]:
    """Compute the anchor in registers under a thread's loop; its loops of one thread."""
    sch.set_scope(anchor, 0, "local")
    sch.compute_at(anchor, loop, preserve_unit_loops=True)
    return own_loops(sch, anchor)


def own_loops(sch: Any, block: Any) -> list[Any]:
    """The innermost loops of a block, one for each of its iterators."""
    return list(sch.get_loops(block))[-len(sch.get(block).iter_vars) :]


def share(sch: Any, anchor: Any, operands: Sequence[int], loop: Any) -> list[Any]:
    """Copies of operands of the anchor in shared memory, made at `loop`."""
    copies = [sch.cache_read(anchor, operand, "shared") for operand in operands]
    for copy in copies:
        sch.compute_at(copy, loop, preserve_unit_loops=True)
    return copies


def inline_before(sch: Any, names: Sequence[str]) -> None:
    """Inline stages before the copies, such as padding, once the copies read them."""
    for name in names:
        sch.compute_inline(sch.get_sblock(name))


def copy_in_runs(sch: Any, copy: Any, tags: Sequence[str], extents: Sequence[int]) -> None:
    """All threads copy together, each a run of neighboring elements."""
    fused = sch.fuse(*own_loops(sch, copy))
    *threads, _ = sch.split(fused, [*extents, None])
    bind_all(sch, threads, tags)


def copy_in_turn(sch: Any, copy: Any, tags: Sequence[str], extents: Sequence[int]) -> None:
    """All threads copy together, neighboring threads neighboring elements."""
    fused = sch.fuse(*own_loops(sch, copy))
    _, *threads = sch.split(fused, [None, *extents])
    bind_all(sch, threads, tags)


def unroll(sch: Any, loop: Any, config: ConfigEntity) -> None:
    """Unroll everything under `loop` up to the record's number of steps."""
    sch.annotate(loop, "pragma_auto_unroll_max_step", config.val("auto_unroll_max_step"))
    sch.annotate(loop, "pragma_unroll_explicit", int(config.val("unroll_explicit")))


def first_candidates(splits: dict[str, int], **options: Any) -> ConfigEntity:
    """AutoTVM's config without a record: inner factors of `splits` (name: count) are 1."""
    knobs: dict[str, Knob] = {name: split(-1, *[1] * (n - 1)) for name, n in splits.items()}
    return ConfigEntity({**knobs, **{name: option(val) for name, val in options.items()}})
