"""Contexts that nest, each family by itself."""

from __future__ import annotations

import threading

import pytest

from compiler.support.scoped_context import NestedContext


class Apple(NestedContext, kind="apple"):
    pass


class Pear(NestedContext, kind="pear"):
    pass


class Curtain(Apple):
    hides_outer = True


Apple.bottom, Pear.bottom = Apple(), Pear()


def test_the_innermost_comes_first_and_families_are_apart():
    outer, inner, pear = Apple(), Apple(), Pear()
    with outer, pear, inner:
        assert Apple.active() == (inner, outer, Apple.bottom)
        assert Pear.active() == (pear, Pear.bottom)
        assert Apple.current is inner and Pear.current is pear
        assert outer.with_outer() == (outer, Apple.bottom)
        assert Apple.bottom.with_outer() == (Apple.bottom,)
    assert Apple.current is Apple.bottom


def test_a_context_may_hide_those_around_it():
    curtain, inner = Curtain(), Apple()
    with Apple(), curtain, inner:
        assert Apple.active() == (inner, curtain)


def test_a_context_that_was_not_entered_asks_all_active_ones_after_itself():
    entered, other = Apple(), Apple()
    with entered:
        assert other.with_outer() == (other, entered, Apple.bottom)


def test_another_thread_sees_none_and_an_error_leaves_none():
    seen = []
    with pytest.raises(KeyError), Apple():
        thread = threading.Thread(target=lambda: seen.append(Apple.current))
        thread.start()
        thread.join()
        raise KeyError
    assert seen == [Apple.bottom] and Apple.current is Apple.bottom


def test_leaving_in_another_order_is_an_error():
    first, second = Apple(), Apple()
    first.__enter__()
    with second, pytest.raises(RuntimeError, match="apple contexts must be left in the order"):
        first.__exit__(None, None, None)
    first.__exit__(None, None, None)
