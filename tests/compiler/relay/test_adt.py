"""Data types, matches and references that a script builds, from nodes to what they compute."""

import numpy as np
import pytest
import tvm
import tvm_ffi

from compiler import relay
from compiler.errors import RelayError
from compiler.relay import adt
from compiler.relay.prelude import Prelude


def evaluate(mod, *args):
    return relay.create_executor("vm", mod).evaluate()(*args)


def numbers(made):
    """The elements of a list of scalars."""
    found = []
    while made:
        found.append(int(made[0].numpy()))
        made = made[1]
    return found


@pytest.fixture
def shapes():
    """A module with a data type of two constructors: `Square(side)` and `Box(width, height)`."""
    mod = tvm.IRModule()
    header = relay.GlobalTypeVar("Shape")
    side = relay.TensorType((2,), "float32")
    square = relay.Constructor("Square", [side], header)
    box = relay.Constructor("Box", [side, side], header)
    adt.define(mod, relay.TypeData(header, [], [square, box]))
    return mod


def area(mod):
    _, square, box = adt.get_type(mod, "Shape")
    shape, a, b, c = (relay.var(name) for name in ("shape", "a", "b", "c"))
    clauses = [
        relay.Clause(relay.PatternConstructor(square, [relay.PatternVar(a)]), relay.multiply(a, a)),
        relay.Clause(
            relay.PatternConstructor(box, [relay.PatternVar(b), relay.PatternVar(c)]),
            relay.multiply(b, c),
        ),
    ]
    return relay.Function([shape], relay.Match(shape, clauses))


def test_a_match_takes_the_clause_of_what_was_made(shapes):
    header, square, box = adt.get_type(shapes, "Shape")
    x = relay.var("x", shape=(2,))
    of = relay.GlobalVar("area")
    shapes[of] = area(shapes)
    shapes["main"] = relay.Function([x], relay.Tuple([of(square(x)), of(box(x, relay.exp(x)))]))
    value = np.array([2, 3], "float32")
    first, second = evaluate(shapes, value)
    np.testing.assert_allclose(first.numpy(), value**2, rtol=1e-6)
    np.testing.assert_allclose(second.numpy(), value * np.exp(value), rtol=1e-6)
    lib = relay.build(shapes, "llvm")  # through the door that everything else takes, too
    assert len(lib.metadata.outputs) == 2
    assert square(x).ty == header()


def test_a_module_with_data_types_is_the_same_module_after_its_text_was_read_again(shapes):
    _, square, _ = adt.get_type(shapes, "Shape")
    x = relay.var("x", shape=(2,))
    of = relay.GlobalVar("area")
    shapes[of] = area(shapes)
    shapes["main"] = relay.Function([x], of(square(x)))
    text = relay.astext(shapes)
    assert "type Shape {" in text and "match (%shape) {" in text
    run = relay.create_executor("vm", relay.fromtext(text)).evaluate()
    np.testing.assert_array_equal(run(np.array([2, 3], "float32")).numpy(), [4, 9])


def test_data_in_a_result_knows_its_constructor(shapes):
    _, square, box = adt.get_type(shapes, "Shape")
    x = relay.var("x", shape=(2,))
    shapes["main"] = relay.Function([x], relay.Tuple([box(x, x), square(x)]))
    one, other = evaluate(shapes, np.ones(2, "float32"))
    assert (one.tag, other.tag) == (box.tag, square.tag)
    assert one.constructor.name_hint == "Box" and len(one.fields) == 2


def test_lists_of_the_prelude_are_evaluated_while_building():
    mod = tvm.IRModule()
    prelude = Prelude(mod)
    _, cons, nil = adt.get_type(mod, "List")
    made = nil()
    for number in (3, 1, 4, 1, 5):
        made = cons(relay.const(number), made)
    x = relay.var("x", shape=(), dtype="int32")
    doubled = prelude.map(relay.Function([x], relay.add(x, x)), made)
    mod["main"] = relay.Function(
        [], relay.Tuple([doubled, prelude.sum(made), prelude.nth(made, relay.const(1))])
    )
    lists, total, second = evaluate(mod)
    assert numbers(lists) == [10, 2, 8, 2, 6]
    assert (int(total.numpy()), int(second.numpy())) == (14, 1)


def test_a_list_may_be_as_long_as_a_value_says():
    mod = tvm.IRModule()
    prelude = Prelude(mod)
    count, below = relay.var("count", shape=(), dtype="int32"), relay.GlobalVar("below")
    _, cons, nil = adt.get_type(mod, "List")
    header = adt.get_type(mod, "List")[0]
    smaller = relay.subtract(count, relay.const(1))
    body = relay.If(relay.equal(count, relay.const(0)), nil(), cons(smaller, below(smaller)))
    mod[below] = relay.Function([count], body, header(relay.scalar_type("int32")))
    n = relay.var("n", shape=(), dtype="int32")
    mod["main"] = relay.Function([n], relay.Tuple([below(n), prelude.length(below(n))]))
    with pytest.warns(UserWarning, match="a function calls itself"):
        run = relay.create_executor("vm", mod).evaluate()
    for size in (0, 1, 7):
        made, length = run(np.int32(size))
        assert numbers(made) == list(range(size))[::-1] and int(length.numpy()) == size


def test_references_are_written_in_the_order_of_their_lets():
    x = relay.var("x", shape=(2,))
    cell, done = relay.var("cell"), relay.var("done")
    written = relay.RefWrite(cell, relay.add(relay.RefRead(cell), x))
    body = relay.Let(
        cell,
        relay.RefCreate(x),
        relay.Let(done, written, relay.Let(relay.var("again"), written, relay.RefRead(cell))),
    )
    mod = tvm.IRModule()
    mod["main"] = relay.Function([x], body)
    # One node is one value: what is written twice is the sum that was read once.
    np.testing.assert_array_equal(evaluate(mod, np.ones(2, "float32")).numpy(), [2, 2])


def test_a_polymorphic_function_takes_values_of_any_type():
    mod = tvm.IRModule()
    prelude = Prelude(mod)
    x = relay.var("x", shape=(3,))
    twice = relay.Function([x], relay.add(x, x))
    y = relay.var("y", shape=(3,))
    made = relay.Call(prelude.compose(twice, prelude.iterate(twice, relay.const(2))), [y])
    mod["main"] = relay.Function([y], prelude.id(made))
    np.testing.assert_array_equal(evaluate(mod, np.ones(3, "float32")).numpy(), [8, 8, 8])


def test_parameters_get_the_type_that_is_declared_where_they_are_handed_on(shapes):
    _, square, _ = adt.get_type(shapes, "Shape")
    of, v = relay.GlobalVar("area"), relay.var("v")
    shapes[of] = area(shapes)
    shapes["main"] = relay.Function([v], of(square(v)))
    np.testing.assert_array_equal(evaluate(shapes, np.array([2, 3], "float32")).numpy(), [4, 9])


@pytest.mark.parametrize(
    "made, message",
    [
        (lambda square, box, x: box(x), "the constructor Box has 2 fields"),
        (lambda square, box, x: relay.RefRead(square(x)), "not a reference"),
        (lambda square, box, x: relay.Match(x, []), "no clause of a `match` fits"),
    ],
)
def test_what_has_no_value_says_why(shapes, made, message):
    _, square, box = adt.get_type(shapes, "Shape")
    x = relay.var("x", shape=(2,))
    shapes["main"] = relay.Function([x], made(square, box, x))
    with pytest.raises(RelayError, match=message):
        evaluate(shapes, np.ones(2, "float32"))


def test_types_of_polymorphic_functions_are_equal_whatever_their_variables_are_called():
    header = relay.GlobalTypeVar("List")
    a, b = relay.TypeVar("a"), relay.TypeVar("b")
    assert relay.FuncType([header(a)], a, [a]) == relay.FuncType([header(b)], b, [b])
    assert relay.FuncType([header(a)], a, [a]) != relay.FuncType([header(b)], header(b), [b])


def test_a_pass_says_what_it_leaves_alone_and_partial_evaluation_what_is_left(shapes):
    _, square, _ = adt.get_type(shapes, "Shape")
    x, of = relay.var("x", shape=(2,)), relay.GlobalVar("area")
    shapes[of] = area(shapes)
    shapes["main"] = relay.Function([x], of(square(relay.exp(x))))
    with pytest.warns(UserWarning, match="FastMath leaves functions over data types"):
        assert "fast_exp" not in relay.astext(relay.transform.FastMath()(shapes))
    plain = relay.transform.PartialEvaluate()(shapes)
    assert relay.analysis.list_op_freqs(plain) == {"exp": 1, "multiply": 1}
    assert "fast_exp" in relay.astext(relay.transform.FastMath()(plain))


def test_the_type_of_a_function_over_data_is_told_by_its_body():
    mod = tvm.IRModule()
    header, element = relay.GlobalTypeVar("Box"), relay.TypeVar("T")
    put = relay.Constructor("put", [element], header)
    adt.define(mod, relay.TypeData(header, [element], [put]))
    made = relay.Function([], relay.Tuple([put(relay.Tuple([])), put(relay.const(0.0))]))
    scalar = relay.TensorType((), "float32")
    expected = relay.TupleType([header(relay.TupleType([])), header(scalar)])
    assert tvm_ffi.structural_equal(made.checked_type.ret, expected)
    value = relay.Var("value", scalar)
    clause = relay.Clause(relay.PatternConstructor(put, [relay.PatternVar(value)]), value)
    taken = relay.Function([], relay.Match(put(relay.const(0.0)), [clause]))
    assert tvm_ffi.structural_equal(taken.checked_type.ret, scalar)
    assert "fn () -> float32 {" in relay.astext(taken)
    with pytest.raises(ValueError, match="takes and returns"):
        relay.Function([relay.var("x")], relay.var("y")).checked_type  # noqa: B018
