"""Kinds of types, type variables, features, and cases that a match leaves out."""

import pytest
import tvm

from compiler import relay
from compiler.errors import RelayError, RelayTypeError
from compiler.relay import adt, analysis
from compiler.relay.prelude import Prelude


@pytest.fixture(scope="module")
def lists():
    mod = tvm.IRModule()
    return Prelude(mod).mod


def wildcards(constructor):
    return [relay.PatternWildcard() for _ in constructor.inputs]


def test_the_cases_that_a_match_leaves_out_are_named(lists):
    _, cons, _nil = adt.get_type(lists, "List")
    value = relay.var("value")
    two = relay.PatternConstructor(
        cons, [relay.PatternWildcard(), relay.PatternConstructor(cons, wildcards(cons))]
    )
    match = relay.Match(value, [relay.Clause(two, value)])
    found = analysis.unmatched_cases(match, lists)
    assert [str(case.constructor.name_hint) for case in found] == ["Cons", "Nil"]
    assert str(found[0].patterns[1].constructor.name_hint) == "Nil"
    whole = relay.Match(value, [*match.clauses, relay.Clause(relay.PatternWildcard(), value)])
    assert analysis.unmatched_cases(whole, lists) == []
    with pytest.raises(RelayError, match="beside Cons"):
        analysis.unmatched_cases(match)


def test_tuples_are_split_by_their_fields(lists):
    _, _cons, nil = adt.get_type(lists, "List")
    empty = relay.PatternConstructor(nil)
    both = relay.PatternTuple([empty, empty])
    match = relay.Match(relay.var("value"), [relay.Clause(both, relay.const(0))])
    found = analysis.unmatched_cases(match, lists)
    assert len(found) == 2 and all(isinstance(each, relay.PatternTuple) for each in found)


def test_kinds_of_types_are_checked(lists):
    header, *_ = adt.get_type(lists, "List")
    tensor = relay.TensorType((2,))
    assert analysis.check_kind(header) == relay.TypeKind.AdtHandle
    assert analysis.check_kind(header(tensor), lists) == relay.TypeKind.Type
    with pytest.raises(RelayTypeError, match="List takes 1 types, not 2"):
        analysis.check_kind(header(tensor, tensor), lists)
    with pytest.raises(RelayTypeError, match="no type"):
        analysis.check_kind(relay.TupleType([relay.TypeVar("s", relay.TypeKind.ShapeVar)]))
    with pytest.raises(RelayTypeError, match="only data types"):
        analysis.check_kind(relay.TypeCall(relay.TypeVar("a"), []))


def test_type_variables_are_bound_by_functions():
    a, b = relay.TypeVar("a"), relay.TypeVar("b")
    x = relay.Var("x", relay.TupleType([a, b]))
    function = relay.Function([x], x, None, [a])
    assert analysis.bound_type_vars(function) == [a]
    assert analysis.free_type_vars(function) == [b]


def test_variables_come_in_the_order_in_which_they_are_bound(lists):
    _, cons, _ = adt.get_type(lists, "List")
    x, head, tail = relay.var("x"), relay.var("head"), relay.var("tail")
    pattern = relay.PatternConstructor(cons, [relay.PatternVar(head), relay.PatternVar(tail)])
    function = relay.Function([x], relay.Match(x, [relay.Clause(pattern, tail)]))
    assert [str(var.name) for var in analysis.bound_vars(function)] == ["x", "head", "tail"]
    assert analysis.free_vars(function) == []


def test_variables_of_lets_are_found_where_the_let_is_unused_or_an_alias():
    a, b, c = (relay.TypeVar(name) for name in "abc")
    x, y, z = (relay.Var(name, ty) for name, ty in zip("xyz", (a, b, c)))
    alias = relay.Let(x, y, x)
    assert analysis.all_type_vars(alias) == analysis.free_type_vars(alias) == [a, b]
    assert analysis.bound_vars(alias) == [x] and analysis.free_vars(alias) == [y]
    chain = relay.Let(y, x, relay.Let(relay.Var("unused"), y, z))
    assert [str(var.name) for var in analysis.all_vars(chain)] == ["y", "x", "unused", "z"]
    assert [str(var.name) for var in analysis.bound_vars(chain)] == ["y", "unused"]
    function = relay.Function([x], relay.Let(y, x, z))
    assert analysis.all_vars(function) == [*analysis.bound_vars(function), z] == [x, y, z]
    assert analysis.all_type_vars(function) == [a, b, c]


def test_values_that_a_relax_function_binds_are_no_lets():
    x = relay.var("x", shape=(2,))
    function = relay.Function([x], relay.nn.relu(relay.exp(x)))
    assert analysis.bound_vars(function) == analysis.all_vars(function.body) == [x]


def test_features_of_a_program(lists):
    found = analysis.detect_feature(lists)
    assert {analysis.Feature.fMatch, analysis.Feature.fConstructor} <= found
    assert analysis.Feature.fRefCreate not in found
    x = relay.var("x", shape=(2,))
    assert analysis.detect_feature(relay.Function([x], x)) == {
        analysis.Feature.fVar,
        analysis.Feature.fFunction,
    }


def test_functions_that_nothing_names_are_dropped(lists):
    mod = tvm.IRModule()
    prelude = Prelude(mod)
    _, cons, nil = adt.get_type(mod, "List")
    mod["main"] = relay.Function([], prelude.sum(cons(relay.const(1), nil())))
    left = relay.transform.RemoveUnusedFunctions()(mod)
    assert {str(name.name_hint) for name in left.get_global_vars()} == {"main", "sum", "foldl"}
    assert adt.get_type(left, "List")
