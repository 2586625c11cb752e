"""Recursions that depend on values which only running tells, from text to what they compute."""

import numpy as np
import pytest

from compiler import relay
from compiler.errors import RelayError

HEADER = '#[version = "0.0.5"]\n'
LIST = "type List[A] { Cons(A, List[A]), Nil, }\n"


def compiled(text):
    with pytest.warns(UserWarning, match="a function calls itself"):
        return relay.create_executor("vm", relay.fromtext(HEADER + text)).evaluate()


def test_a_loop_runs_as_often_as_a_value_says():
    run = compiled(
        """
        def @main(%n: int32, %x: Tensor[(2), float32], %w: Tensor[(2), float32]) {
          let %loop = fn (%i: int32, %s: Tensor[(2), float32]) -> (int32, Tensor[(2), float32]) {
            if (less(%i, %n)) { %loop(add(%i, 1), add(%s, %w)) } else { (%i, %s) }
          };
          %loop(0, %x)
        }
        """
    )
    for count in (0, 1, 40_000):
        steps, total = run(np.int32(count), np.zeros(2, "float32"), np.array([1, 2], "float32"))
        assert int(steps.numpy()) == count
        np.testing.assert_array_equal(total.numpy(), [count, 2 * count])


def test_a_tensor_grows_through_a_recursion():
    run = compiled(
        """
        def @grow(%i: int32, %all: Tensor[(?), int32]) -> Tensor[(?), int32] {
          if (less(%i, 1)) { %all } else {
            @grow(subtract(%i, 1), concatenate((%all, reshape(%i, newshape=[1]))))
          }
        }
        def @main(%n: int32) { @grow(%n, reshape(%n, newshape=[1])) }
        """
    )
    for count in (0, 4):
        np.testing.assert_array_equal(run(np.int32(count)).numpy(), [count, *range(count, 0, -1)])


def test_data_of_run_time_is_made_matched_and_returned():
    run = compiled(
        LIST
        + """
        type Sign { Negative, Zero, Positive(int32), }
        def @sign(%x: int32) -> Sign[] {
          if (less(%x, 0)) { Negative } else { if (less(0, %x)) { Positive(%x) } else { Zero } }
        }
        def @below(%n: int32) -> List[int32] {
          if (equal(%n, 0)) { Nil } else { Cons(subtract(%n, 3), @below(subtract(%n, 1))) }
        }
        def @total[A](%xs: List[A], %f: fn (A) -> int32) -> int32 {
          match (%xs) { Cons(%x, %rest) => { add(%f(%x), @total(%rest, %f)) }, Nil => { 0 }, }
        }
        def @main(%n: int32, %w: int32) {
          let %list = @below(%n);
          let %f = fn (%x: int32) -> int32 {
            match (@sign(%x)) {
              Negative => { multiply(%x, %w) }, Zero => { 1000 }, Positive(%p) => { %p },
            }
          };
          (%list, @total(%list, %f))
        }
        """
    )
    items, total = run(np.int32(5), np.int32(10))  # 2, 1, 0, -1, -2
    assert int(total.numpy()) == 2 + 1 + 1000 - 10 - 20
    head, rest = items
    assert int(head.numpy()) == 2
    assert [int(head.numpy()) for head in (rest[0], rest[1][0])] == [1, 0]
    items, total = run(np.int32(0), np.int32(10))
    assert (items, int(total.numpy())) == ([], 0)


def test_two_functions_may_call_each_other():
    run = compiled(
        LIST
        + """
        def @even(%n: int32, %l: List[int32]) -> int32 {
          if (equal(%n, 0)) { 1 } else { @odd(subtract(%n, 1), Cons(%n, %l)) }
        }
        def @odd(%n: int32, %l: List[int32]) -> int32 {
          if (equal(%n, 0)) { 0 } else { @even(subtract(%n, 1), %l) }
        }
        def @main(%n: int32) { @even(%n, Nil) }
        """
    )
    assert [int(run(np.int32(n)).numpy()) for n in (0, 1, 2, 7, 100)] == [1, 0, 1, 0, 1]


def test_a_recursion_returns_what_it_returns_without_itself():
    run = compiled(
        """
        def @main(%n: int32) {
          let %f = fn (%i: int32, %s: float32) {
            if (less(%i, %n)) { %f(add(%i, 1), multiply(%s, 2f)) } else { (%s, %i) }
          };
          %f(0, 1f)
        }
        """
    )
    power, count = run(np.int32(5))
    assert (float(power.numpy()), int(count.numpy())) == (32.0, 5)


@pytest.mark.parametrize(
    "body, message",
    [
        (
            "let %r = ref(0); let %f = fn (%i: int32) -> int32 "
            "{ if (less(%i, %n)) { ref_write(%r, %i); %f(add(%i, 1)) } else { %i } }; %f(0)",
            "uses a reference that was made outside",
        ),
        (
            "let %f = fn (%i: int32, %x) -> int32 { if (less(%i, %n)) "
            "{ %f(add(%i, 1), concatenate((%x, %x))) } else { %i } }; %f(0, ones(shape=[2], "
            'dtype="float32"))',
            "other shapes each time",
        ),
        (
            "let %f = fn (%i: int32) { if (less(%i, %n)) { %f(add(%i, 1)) } else { %f(%i) } }; "
            "%f(0)",
            "depends on itself alone",
        ),
    ],
)
def test_recursions_that_cannot_be_compiled_say_why(body, message):
    with pytest.raises(RelayError, match=message):
        relay.fromtext(f"{HEADER}def @main(%n: int32) {{ {body} }}")
