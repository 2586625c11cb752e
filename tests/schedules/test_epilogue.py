"""What is inlined around an anchor and what is not."""

import pytest
from tvm import s_tir, te

from schedules.anchor import find_anchor, sblocks
from schedules.epilogue import inline_epilogue, is_costly


def fused(build):
    """A product between what `build` puts in front of it and behind it."""
    x = te.placeholder((8, 8), name="x")
    k = te.reduce_axis((0, 8), "k")

    def product(left):
        return te.compute(
            (8, 8),
            lambda i, j: te.sum(left[i, k] * x[k, j], axis=[k]),
            name="product",
            attrs={"schedule_rule": "any", "schedule_config": "[]"},
        )

    return s_tir.Schedule(te.create_prim_func([x, build(x, product)]))


def each(function, *tensors, name):
    return te.compute((8, 8), lambda *i: function(*(t[i] for t in tensors)), name=name)


def names(sch, blocks):
    return [str(sch.get(block).name_hint) for block in blocks]


def test_cheap_blocks_are_inlined_even_if_read_twice():
    def build(x, product):
        shifted = each(lambda a: a + 1.0, product(x), name="shifted")
        return each(lambda a: a * a, shifted, name="out")

    sch = fused(build)
    parts = inline_epilogue(sch, find_anchor(sch))
    assert list(sblocks(sch)) == ["product", "out"]
    assert parts.repeated == [] and not parts.costly_output


def test_a_costly_block_read_twice_is_computed_once():
    def build(x, product):
        power = each(te.exp, product(x), name="power")
        return each(lambda a: a * a, power, name="out")

    sch = fused(build)
    parts = inline_epilogue(sch, find_anchor(sch))
    assert names(sch, parts.repeated) == ["power"]
    assert not parts.costly_output


def test_a_cheap_block_that_carries_a_costly_one_is_computed_once():
    def build(x, product):
        power = each(te.exp, product(x), name="power")
        shifted = each(lambda a: a + 1.0, power, name="shifted")
        return each(lambda a: a * a, shifted, name="out")

    sch = fused(build)
    parts = inline_epilogue(sch, find_anchor(sch))
    assert names(sch, parts.repeated) == ["shifted"]


def test_a_costly_block_read_once_makes_the_output_costly():
    def build(x, product):
        return each(lambda a: a + 1.0, each(te.tanh, product(x), name="tanh"), name="out")

    sch = fused(build)
    parts = inline_epilogue(sch, find_anchor(sch))
    assert parts.repeated == [] and parts.costly_output


def test_a_prologue_is_never_inlined_into_the_anchor():
    def build(x, product):
        first = each(lambda a: a + 1.0, x, name="first")
        second = each(lambda a: a * 2.0, first, name="second")
        return each(lambda a, b: a + b, product(second), second, name="out")

    sch = fused(build)
    parts = inline_epilogue(sch, find_anchor(sch))
    assert names(sch, parts.before) == ["second"]
    assert list(sblocks(sch)) == ["second", "product", "out"]


@pytest.mark.parametrize(
    "function, costly", [(te.exp, True), (te.tanh, True), (te.floor, False), (te.abs, False)]
)
def test_costly_means_a_call_of_many_cycles(function, costly):
    x = te.placeholder((8, 8), name="x")
    sch = s_tir.Schedule(te.create_prim_func([x, each(function, x, name="out")]))
    assert is_costly(sch.get(sch.get_sblock("out"))) == costly
