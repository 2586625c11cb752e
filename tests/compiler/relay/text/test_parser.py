import numpy as np
import pytest

from compiler.errors import RelaySyntaxError
from compiler.relay.text import syntax
from compiler.relay.text.parser import parse_expression, parse_module

HEADER = '#[version = "0.0.5"]\n'


def body(text):
    return (
        parse_module(HEADER + "def @main(%x: Tensor[(2), float32]) {" + text + "}")
        .functions["main"]
        .body
    )


@pytest.mark.parametrize(
    ("literal", "dtype", "value"),
    [
        ("3", "int32", 3),
        ("-3i64", "int64", -3),
        ("7i8", "int8", 7),
        ("1.5f", "float32", 1.5),
        ("2e-05f64", "float64", 2e-05),
        ("1f16", "float16", 1),
        ("inff", "float32", np.inf),
        ("-inff64", "float64", -np.inf),
        ("True", "bool", True),
        ("2147483647", "int32", 2**31 - 1),
        ("2147483648", "int64", 2**31),
        ("-42i", "int32", -42),
        ("--10", "int32", 10),
        ("-(-1.5f)", "float32", 1.5),
    ],
)
def test_scalar_constants_have_the_type_of_their_suffix(literal, dtype, value):
    constant = parse_expression(literal).result
    assert str(constant.value.dtype) == dtype
    assert constant.value == value


@pytest.mark.parametrize("literal", ["2147483648i32", "32768i16", "3.40283e+38f", "65505f16"])
def test_a_number_that_its_type_can_not_hold_is_refused(literal):
    with pytest.raises(RelaySyntaxError, match="does not fit"):
        parse_expression(literal)


def test_a_minus_before_what_is_no_number_is_a_call():
    made = parse_expression("free_var %a; -%a * %a").result
    assert made.function.name == "multiply"
    assert made.arguments[0].function.name == "negative"


@pytest.mark.parametrize(
    "types", ["type A { X } type A { Y }", "type A { X } type B { X }", "type A { X, X }"]
)
def test_types_and_constructors_are_defined_once(types):
    with pytest.raises(RelaySyntaxError, match="defined twice"):
        parse_module('#[version = "0.0.5"]\n' + types)


def test_operators_bind_as_in_arithmetic():
    whole = parse_expression("free_var %a; %a + %a * %a < %a - %a - %a").result
    assert whole.function.name == "less"
    assert whole.arguments[0].function.name == "add"
    assert whole.arguments[0].arguments[1].function.name == "multiply"
    assert whole.arguments[1].arguments[0].function.name == "subtract"


def test_attributes_are_plain_values():
    call = body(
        'f(%x, a=[1, -2], b=0.1f, c="it\\"s", d=None, e=True, g=[[1, 2], [3f]], h=[])'
    ).result
    assert call.attributes == {
        "a": [1, -2],
        "b": 0.1,
        "c": 'it"s',
        "d": None,
        "e": True,
        "g": [[1, 2], [3.0]],
        "h": [],
    }


def test_names_may_have_dots_and_fields_follow_them():
    block = body("let %conv.weight = (%x, %x); %conv.weight.1")
    assert isinstance(block.result, syntax.Field)
    assert block.result.index == 1
    assert block.result.tuple.name == "conv.weight"


def test_comments_nest():
    assert isinstance(body("/* a /* b */ c */ %x // d\n").result, syntax.Var)


def test_types_of_every_kind_are_read():
    text = (
        HEADER
        + "type List[A] { Cons(A, List[A]), Nil, }\n"
        + "def @f[A](%a: List[A], %g: fn (A) -> (A, int8), %r: ref(A), "
        + "%t: Tensor[(?, 3), bool]) { %a }"
    )
    module = parse_module(text)
    kinds = [var.type for var in module.functions["f"].parameters]
    assert kinds[0] == syntax.NamedType("List", (syntax.NamedType("A"),), True)
    assert kinds[3] == syntax.TensorType((None, 3), "bool")
    assert list(module.types["List"].constructors) == ["Cons", "Nil"]


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("def @main(%x: float32) { add(%x, %y) }", "2:34", "%y is not bound"),
        ("def @main(%x: float32) {\n  add(%x, %x\n}", "4:1", "expected `)`"),
        ("def @main() { 1.5 }", "2:15", "needs a suffix"),
        ("def @main() { 300i8 }", "2:15", "does not fit"),
        ("def @main() { meta[relay.Constant][0] }", "2:15", "metadata section has 0"),
        ("def @main() { $ }", "2:15", "unexpected character"),
        ("def @main() { /* }", "2:15", "does not end"),
        ("def @main() { nn.relu }", "2:15", "not called"),
        ("def @f() { 1 } def @f() { 1 }", "2:20", "defined twice"),
    ],
)
def test_errors_show_line_column_and_the_line(text, place, says):
    with pytest.raises(RelaySyntaxError) as raised:
        parse_module(HEADER + text, "file.relay")
    message = str(raised.value)
    assert message.startswith(f"file.relay:{place}: ")
    assert says in message
    assert message.splitlines()[-1].strip() == "^"


def test_text_without_header_or_of_another_version_is_refused():
    with pytest.raises(RelaySyntaxError, match="begins with"):
        parse_module("def @main() { 1 }")
    with pytest.raises(RelaySyntaxError, match=r"not 0\.0\.4"):
        parse_module('#[version = "0.0.4"]\ndef @main() { 1 }')


def test_nesting_beyond_reason_is_an_error_and_not_a_crash():
    with pytest.raises(RelaySyntaxError, match="nested"):
        parse_expression("(" * 100_000)
