import pytest
from tvm import relax

from compiler import relay
from compiler.relay.dataflow_pattern import (
    DFPatternCallback,
    FunctionPattern,
    dominates,
    is_constant,
    is_if,
    is_let,
    is_op,
    is_tuple,
    is_tuple_get_item,
    is_var,
    rewrite,
    wildcard,
)
from compiler.relay.nested_expressions import nested


def body(text, parameters="%x: Tensor[(2, 3), float32], %y: Tensor[(2, 3), float32]"):
    mod = relay.fromtext(f'#[version = "0.0.5"]\ndef @main({parameters}) {{ {text} }}')
    return nested(mod["main"])


def test_operators_match_by_name_operands_and_attributes():
    expr = body("nn.softmax(nn.relu(%x), axis=1)")
    assert is_op("nn.softmax")(is_op("nn.relu")(is_var("x"))).match(expr)
    assert not is_op("nn.softmax")(is_op("nn.relu")(is_var("y"))).match(expr)
    assert is_op("nn.softmax")(wildcard()).has_attr({"axis": 1}).match(expr)
    assert not is_op("nn.softmax")(wildcard()).has_attr({"axis": 0}).match(expr)


def test_defaults_of_attributes_count():
    expr = body("nn.softmax(%x)")
    assert is_op("nn.softmax")(wildcard()).has_attr({"axis": -1}).match(expr)


def test_sums_match_in_both_orders_and_differences_do_not():
    for name, commutes in (("add", True), ("multiply", True), ("subtract", False)):
        expr = body(f"{name}(nn.relu(%x), tanh(%y))")
        pattern = is_op(name)(is_op("tanh")(wildcard()), is_op("nn.relu")(wildcard()))
        assert pattern.match(expr) is commutes


def test_one_pattern_twice_is_one_expression_twice():
    part = wildcard()
    pattern = is_op("add")(part, part)
    assert pattern.match(body("add(%x, %x)"))
    assert not pattern.match(body("add(%x, %y)"))


def test_alternatives_options_types_and_tuples():
    either = is_op("exp")(wildcard()) | is_op("tanh")(wildcard())
    assert either.match(body("exp(%x)"))
    assert not either.match(body("log(%x)"))
    maybe = is_op("exp")(wildcard()).optional(lambda x: is_op("nn.relu")(x))
    assert maybe.match(body("exp(%x)"))
    assert maybe.match(body("nn.relu(exp(%x))"))
    assert wildcard().has_shape([2, 3]).has_dtype("float32").match(body("exp(%x)"))
    assert not wildcard().has_shape([3, 2]).match(body("exp(%x)"))
    split = is_tuple_get_item(is_op("split")(wildcard()), 0)
    assert split.match(body("%0 = split(%x, indices_or_sections=3, axis=1); %0.0"))
    assert is_op("concatenate")(is_tuple([is_var("x"), is_var("y")])).match(
        body("concatenate((%x, %y))")
    )
    assert (is_constant() + is_var("x")).match(body("add(%x, 1f)"))


def test_a_child_is_dominated_by_its_parent():
    pattern = dominates(
        is_op("tanh")(wildcard()),
        is_op("exp")(wildcard()) | is_op("nn.relu")(wildcard()),
        is_op("add")(wildcard(), wildcard()),
    )
    assert pattern.match(body("%0 = tanh(%x); add(exp(%0), nn.relu(%0))"))
    assert not pattern.match(body("%0 = tanh(%x); add(exp(%0), log(%0))"))


def test_a_node_on_the_path_may_look_like_the_parent():
    leaky = is_op("nn.leaky_relu")(wildcard())
    expr = body("%0 = nn.leaky_relu(%x); add(nn.leaky_relu(%0), nn.relu(%0))")
    assert dominates(leaky, wildcard(), is_op("add")(wildcard(), wildcard())).match(expr)
    other = body("%0 = nn.leaky_relu(%x); add(nn.leaky_relu(%0), nn.relu(%y))")
    assert not dominates(leaky, wildcard(), is_op("add")(wildcard(), wildcard())).match(other)


def test_text_of_a_pattern_names_its_parts_and_ends_where_it_recurs():
    data = wildcard()
    text = repr(is_op("nn.relu")(data) | is_op("add")(data, is_constant()))
    assert "nn.relu" in text and "add" in text
    assert text.count("WildcardPattern") == 1 and text.count("ConstantPattern") == 1
    chain = wildcard()
    chain.redirect_to(is_op("exp")(chain))
    assert repr(chain).endswith(", [#0]))")


def test_rewriting_goes_on_until_nothing_matches():
    class DropRelu(DFPatternCallback):
        def __init__(self):
            super().__init__()
            self.data = wildcard()
            self.pattern = is_op("nn.relu")(is_op("nn.relu")(self.data))

        def callback(self, pre, post, node_map):
            return relay.nn.relu(node_map[self.data][0])

    expr = rewrite(DropRelu(), body("nn.relu(nn.relu(nn.relu(nn.relu(exp(%x)))))"))
    assert is_op("nn.relu")(is_op("exp")(wildcard())).match(expr)


def test_partition_makes_a_function_of_each_match_and_embeds_constants():
    pattern = is_op("nn.relu")(is_op("add")(wildcard(), is_constant()))
    expr = pattern.partition(body("exp(nn.relu(add(tanh(%x), 1f)))"), {"Composite": "c.add_relu"})
    function = expr.args[0].op
    assert function.attrs["Composite"] == "c.add_relu"
    assert function.attrs["PartitionedFromPattern"] == "add_nn.relu_"
    assert len(function.params) == 1
    assert expr.args[0].args[0].op.name == "tanh"


def test_a_match_whose_inner_value_is_read_elsewhere_is_left_alone():
    pattern = is_op("nn.relu")(is_op("tanh")(wildcard()))
    expr = body("%0 = tanh(%x); add(nn.relu(%0), %0)")
    assert pattern.partition(expr).same_as(expr)
    assert pattern.partition(expr, check=lambda _: False).same_as(expr)


def test_unknown_operators_are_errors():
    with pytest.raises(NotImplementedError, match=r"nn\.conv9d"):
        is_op("nn.conv9d")


def test_conditions_and_lets_match_by_their_parts():
    x, y = relay.var("x", shape=()), relay.var("y", shape=())
    less = relay.less(x, y)
    pattern = is_if(is_op("less")(is_var("x"), is_var("y")), is_op("add")(wildcard(), wildcard()),
                    is_var("y"))  # fmt: skip
    assert pattern.match(relay.If(less, relay.add(x, x), y))
    assert not pattern.match(relay.If(less, x, y))
    flag = relay.var("flag", shape=(), dtype="bool")
    bound = is_let(is_var("flag"), is_op("less")(is_var("x"), is_var("y")), is_var("flag"))
    assert bound.match(relay.Let(flag, less, flag))
    assert not bound.match(relay.Let(flag, relay.greater(x, y), flag))


def test_an_operator_matches_by_how_it_fuses():
    elementwise = wildcard().has_attr({"TOpPattern": relay.op.OpPattern.ELEMWISE})
    assert elementwise(wildcard()).match(body("nn.relu(%x)"))
    assert not elementwise(wildcard()).match(body("nn.softmax(%x)"))


def test_a_function_of_parameters_without_types_matches():
    x, y = relay.var("x"), relay.var("y")
    pattern = FunctionPattern([wildcard(), wildcard()], wildcard() + wildcard())
    assert pattern.match(relay.Function([x, y], relay.add(x, y)))
    assert not pattern.match(relay.Function([x], relay.add(x, x)))


def test_a_pattern_of_any_operands_matches_calls_of_any_number():
    x, y = relay.var("x"), relay.var("y")
    for call in (relay.nn.relu(x), relay.add(x, y)):
        assert wildcard()(None).match(call)
    elementwise = wildcard().has_attr({"TOpPattern": relay.op.OpPattern.ELEMWISE})(None)
    assert elementwise.match(relay.tanh(x))
    assert not elementwise.match(relay.add(x, y))


def test_what_is_made_of_untyped_variables_matches_and_partitions():
    x, y, w = relay.var("x"), relay.var("y"), relay.var("w")
    condition = relay.less(x, y)
    pattern = is_if(is_op("less")(None), wildcard(), wildcard())
    assert pattern.match(relay.If(condition, x, y))
    assert is_let(is_var("w"), is_op("less")(None), wildcard()).match(relay.Let(w, condition, w))

    function = relay.Function([x, y], relay.nn.relu(relay.nn.dense(x, y)))
    call = function.with_attr("Composite", "mine")(relay.var("a"), relay.var("b"))
    assert call.op.attrs["Composite"] == "mine"
    of_two = FunctionPattern([wildcard(), wildcard()], is_op("nn.relu")(is_op("nn.dense")(None)))
    assert of_two.match(call.op)
    fused = is_op("nn.relu")(is_op("nn.dense")(wildcard(), wildcard()))
    parted = fused.partition(relay.nn.relu(relay.nn.dense(x, y)), {"Composite": "mine"})
    assert parted.op.attrs["PartitionedFromPattern"] == "nn.dense_nn.relu_"
    assert len(parted.op.params) == 2


def test_products_and_quotients_match_in_any_order():
    a, b, c = (wildcard() for _ in range(3))
    texts = ["divide(multiply(%x, %y), %x)", "multiply(%x, divide(%y, %x))"]
    texts.append("multiply(divide(%x, %x), %y)")
    for text in texts:
        assert ((a * b) / c).match(body(text)), text
        assert (a * (b / c)).match(body(text)), text
    assert not ((a * b) / c).match(body("divide(add(%x, %y), %x)"))


def test_what_lies_on_a_dominated_path_belongs_to_the_match():
    diamond = dominates(is_op("exp")(wildcard()), wildcard()(wildcard()), is_op("add")(None))
    expr = body("%0 = exp(%x); add(nn.relu(tanh(%0)), sigmoid(%0))")
    call = diamond.partition(expr)
    assert str(call.op.attrs["PartitionedFromPattern"]) == "exp_tanh_nn.relu_sigmoid_add_"
    assert len(call.args) == len(call.op.params) == 1


def test_a_matched_function_keeps_its_own_variables():
    x, y, b = (relay.var(name, shape=(2,)) for name in "xyb")
    function = relay.Function([x, y], relay.nn.relu(relay.add(x, y)))
    pattern = FunctionPattern(None, is_op("nn.relu")(wildcard()))(None) + wildcard()
    call = pattern.partition(relay.add(relay.Call(function, [b, b]), y))
    assert str(call.op.attrs["PartitionedFromPattern"]) == "add_nn.relu_FunctionCall_add_"
    assert [str(each.name) for each in call.args] == ["b", "y"]


def test_a_callback_that_rewrites_once_runs_once_beside_one_that_goes_on():
    class Shorter(DFPatternCallback):
        pattern = is_op("exp")(is_op("exp")(wildcard()))

        def __init__(self):
            super().__init__()
            self.pattern = Shorter.pattern

        def callback(self, pre, post, node_map):
            return post.args[0]

    class Longer(DFPatternCallback):
        def __init__(self):
            super().__init__(rewrite_once=True)
            self.pattern = is_op("tanh")(wildcard())

        def callback(self, pre, post, node_map):
            return relay.nn.relu(post)

    made = rewrite([Longer(), Shorter()], body("tanh(exp(exp(exp(%x))))"))
    assert is_op("nn.relu")(is_op("tanh")(is_op("exp")(is_var("x")))).match(made)


def test_patterns_have_relays_names_of_their_parts():
    anything = wildcard()
    item = is_tuple_get_item(anything, 1)
    assert (item.tuple, item.index) == (anything, 1)
    assert anything.has_attr({"axis": 1}).attrs == {"axis": 1}
    assert anything.has_dtype("float32").dtype == "float32"
    assert list(anything.has_shape((2, 3)).shape) == [2, 3]
    wanted = relax.TensorType((2, 3), "float32")
    assert anything.has_type(wanted).type == wanted
