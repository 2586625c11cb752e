import numpy as np
import pytest
import tvm

from compiler import relay
from compiler.errors import RelayError, RelayTypeError
from compiler.relay import adt
from compiler.relay.text import syntax
from compiler.relay.text.kinds import relax_type
from tests.compiler.relay.oracle import assert_same, flat, programs, run

HEADER = '#[version = "0.0.5"]\n'


def evaluate(text, *inputs):
    return run(relay.fromtext(HEADER + text), list(inputs))


def test_every_program_of_the_sample_is_written_and_read_back_unchanged():
    for case in programs():
        once = relay.astext(relay.fromtext(case["text"], case["id"]))
        assert relay.astext(relay.fromtext(once, case["id"])) == once, case["id"]


@pytest.mark.parametrize("case", programs()[::14], ids=lambda case: case["id"])
def test_programs_compute_what_relay_computed(case):
    mod = relay.fromtext(case["text"], case["id"])
    written = relay.fromtext(relay.astext(mod), case["id"])
    got = flat(relay.create_executor("vm", written).evaluate()(*case["inputs"]))
    assert_same(case, got)


@pytest.mark.parametrize(
    "case",
    [case for case in programs() if case["level"] == "language"][::4],
    ids=lambda case: case["id"],
)
def test_data_types_references_and_functions_are_evaluated_while_reading(case):
    got = flat(
        relay.create_executor("debug", relay.fromtext(case["text"])).evaluate()(*case["inputs"])
    )
    assert_same(case, got)


def test_a_condition_known_at_run_time_stays_one():
    text = "def @main(%c: bool, %x: Tensor[(2), float32]) { if (%c) { %x } else { negative(%x) } }"
    x = np.array([1, 2], "float32")
    mod = relay.fromtext(HEADER + text)
    run_it = relay.create_executor("vm", mod).evaluate()
    np.testing.assert_array_equal(run_it(np.bool_(True), x).numpy(), x)
    np.testing.assert_array_equal(run_it(np.bool_(False), x).numpy(), -x)


def test_global_functions_stay_functions_of_the_module():
    text = """
    def @double(%a: Tensor[(2), float32]) -> Tensor[(2), float32] { add(%a, %a) }
    def @main(%x: Tensor[(2), float32]) { multiply(@double(%x), @double(negative(%x))) }
    """
    mod = relay.fromtext(HEADER + text)
    assert sorted(gvar.name_hint for gvar in mod.get_global_vars()) == ["double", "main"]
    x = np.array([1, 3], "float32")
    np.testing.assert_array_equal(run(mod, [x])[0], -4 * x * x)


def test_weights_without_a_type_get_the_one_their_operator_demands():
    text = "def @main(%x: Tensor[(1, 4), float32], %w) { nn.dense(%x, %w, units=3) }"
    weight = relay.fromtext(HEADER + text)["main"].params[1]
    assert [int(extent) for extent in weight.ty.shape.values] == [3, 4]


def test_type_errors_name_operator_types_and_place():
    text = "def @main(%x: Tensor[(2, 3), float32], %y: Tensor[(4), float32]) {\n  add(%x, %y)\n}"
    with pytest.raises(RelayTypeError) as raised:
        relay.fromtext(HEADER + text, "file")
    message = str(raised.value)
    assert message.startswith("file:3:3: ")
    assert "add" in message
    assert "Tensor[(2, 3), float32]" in message
    assert "Tensor[(4), float32]" in message


def test_a_recursion_over_data_that_does_not_end_is_an_error():
    text = """
    type List[A] { Cons(A, List[A]), Nil, }
    def @loop(%n: List[float32]) -> List[float32] { @loop(Cons(1f, %n)) }
    def @main() { let %r = @loop(Nil); 1f }
    """
    with pytest.raises(RelayError, match="recursion"):
        relay.fromtext(HEADER + text)


def test_extents_left_open_are_those_of_the_arguments():
    text = "def @main(%x: Tensor[(?, 2), float32]) { sum(%x, axis=[0]) }"
    for rows in (1, 5):
        x = np.ones((rows, 2), "float32")
        np.testing.assert_array_equal(evaluate(text, x)[0], [rows, rows])


def test_functions_given_beforehand_can_be_called():
    known = relay.fromtext(
        HEADER + "def @helper(%a: Tensor[(2), float32]) -> Tensor[(2), float32] { negative(%a) }"
    )
    mod = relay.parse(
        HEADER + "def @main(%x: Tensor[(2), float32]) { @helper(%x) }", init_module=known
    )
    np.testing.assert_array_equal(run(mod, [np.ones(2, "float32")])[0], [-1, -1])


def test_constants_can_be_given_beside_the_text():
    text = HEADER + "def @main(%x: Tensor[(2), float32]) { add(%x, meta[relay.Constant][0]) }"
    table = {"relay.Constant": [np.array([1, 2], "float32")]}
    mod = relay.parse(text, init_meta_table=table)
    np.testing.assert_array_equal(run(mod, [np.zeros(2, "float32")])[0], [1, 2])


def test_attributes_that_are_not_integers_are_refused_with_their_place():
    text = '#[version = "0.0.5"]\ndef @main(%x: Tensor[(1, 3, 6, 6), float32]) {\n'
    text += "  nn.max_pool2d(%x, pool_size=[2, 2], padding=[inff, 0, 0, 0])\n}\n"
    with pytest.raises(RelayTypeError, match=r"3:3.*\[inf, 0, 0, 0\] are not integers"):
        relay.fromtext(text)


def test_text_without_a_main_over_tensors_is_a_module_to_go_on_with():
    mod = relay.fromtext(
        """#[version = "0.0.5"]
        type Pair[A] { Both(A, A), }
        def @first[A](%pair: Pair[A]) -> A { match %pair { Both(%one, _) => %one } }
        def @length(%n: int) -> int { if (%n == 0) { 0 } else { 1 + @length(%n - 1) } }
        """
    )
    _, both = adt.get_type(mod, "Pair")
    x = relay.var("x", shape=(2,))
    first = mod.get_global_var("first")
    mod["main"] = relay.Function([x], relay.Call(first, [both(relay.exp(x), x)]))
    found = relay.create_executor("vm", mod).evaluate()(np.zeros(2, "float32"))
    np.testing.assert_array_equal(found.numpy(), [1, 1])
    read = relay.fromtext(relay.astext(relay.transform.RemoveUnusedFunctions(["first"])(mod)))
    assert [str(name.name_hint) for name in read.get_global_vars()] == ["first"]


def test_an_expression_is_read_as_it_stands():
    function = relay.parse_expr("fn (%x: float32, Primitive=1) { add(%x, 1f) }")
    assert int(function.attrs["Primitive"]) == 1
    chosen = relay.parse_expr("if (True) { 0 } else { 1 }")
    assert isinstance(chosen, tvm.relax.If)
    called = relay.parse_expr("@helper")
    assert isinstance(called, tvm.ir.GlobalVar) and called.name_hint == "helper"
    assert relay.parse_expr("nn.relu").name == "nn.relu"
    open_function = relay.parse_expr("fn (%x) { %x }")
    assert len(open_function.params) == 1


def test_errors_of_expressions_name_their_place():
    with pytest.raises(RelayTypeError, match=r"from_string:2:9: .*nn.dense"):
        relay.parse_expr("free_var %x: Tensor[(3, 4), float32];\nadd(1f, nn.dense(%x, 1f))")


def test_expressions_nest_as_deep_as_the_parser_reads():
    deep = relay.parse_expr("free_var %x: float32; " + "negative(" * 350 + "%x" + ")" * 350)
    assert relay.astext(deep, show_meta_data=False).count("negative") == 350


def test_an_extent_beyond_64_bits_is_an_error():
    with pytest.raises(RelayError, match=r"above 2\*\*63 - 1"):
        relax_type(syntax.TensorType((2**63,), "float32"))
