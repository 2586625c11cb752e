"""What old scripts and tests do with expressions, under the old names."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import tvm

from compiler import legacy
from compiler.errors import BuildError, LegacyImportError


@pytest.fixture(autouse=True)
def old_names():
    legacy.install(everything=True)
    yield
    legacy.uninstall()


@pytest.fixture
def relay():
    from compiler import relay

    return relay


def test_arithmetic_makes_relays_operators(relay):
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    assert [e.op.name for e in (x + y, x - y, x * y, x / y)] == [
        *("add", "subtract", "multiply", "divide")
    ]
    assert (x < y).op.name == "less" and (-x).op.name == "negative"
    assert x.astype("int32").ty.dtype == "int32"
    reversed_difference = 1.0 - x
    run = relay.create_executor("graph").evaluate(relay.Function([x], reversed_difference))
    np.testing.assert_array_equal(run(np.array([3, 1], "float32")).numpy(), [-2, 0])


def test_arithmetic_in_modules_of_relax_makes_relaxs_operators():
    from tvm import relax

    x = relax.Var("x", relax.TensorStructInfo((2, 3), "float32"))
    w = relax.Var("w", relax.TensorStructInfo((3,), "float32"))
    assert (relax.op.abs(x) + w).op.name == "relax.add"
    assert (x + w).op.name == "add"
    builder = relax.BlockBuilder()
    with builder.function("main", [x, w]):
        out = builder.emit(x * w)
        builder.emit_func_output(out)
    assert builder.get()["main"].body.op.name == "relax.multiply"


def test_a_function_body_has_the_attributes_of_what_it_computes(relay):
    x = relay.var("x", shape=(1, 8))
    function = relay.Function([x], relay.nn.softmax(relay.exp(x), axis=1))
    body = tvm.IRModule.from_expr(function)["main"].body
    assert isinstance(body, relay.Call) and not isinstance(body, relay.Tuple)
    assert body.op == relay.op.get("nn.softmax") and body.attrs.axis == 1
    assert body.args[0].op.name == "exp"
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = body.no_such_thing


def test_expressions_are_compared_whatever_their_variables_are_called(relay):
    def made(name, reverse=False, power=2.0):
        x = relay.var(name, shape=(3,))
        left, right = relay.exp(x), relay.power(x, relay.const(power))
        if reverse:
            left, right = right, left
        return relay.Function([x], relay.add(left, right))

    tvm.ir.assert_structural_equal(made("x"), tvm.IRModule.from_expr(made("y"))["main"])
    assert tvm.ir.structural_hash(made("x")) == tvm.ir.structural_hash(made("y"))
    assert not tvm.ir.structural_equal(made("x"), made("x", reverse=True))
    with pytest.raises(ValueError, match="StructuralEqual"):
        tvm.ir.assert_structural_equal(made("x"), made("x", power=3.0))


def test_types_with_equal_extents_are_equal(relay):
    n, m = tvm.te.size_var("n"), tvm.te.size_var("m")
    x = relay.var("x", relay.TensorType((n, 4), "float32"))
    joined = relay.concatenate([x, x, x], axis=0)
    assert joined.checked_type == relay.TensorType((n * 3, 4), "float32")
    assert joined.checked_type != relay.TensorType((n * 2, 4), "float32")
    assert joined.checked_type != relay.TensorType((m * 3, 4), "float32")
    anything = relay.TensorType((relay.Any(), 2))
    assert anything == relay.TensorType((tvm.tir.Any(), 2))
    assert anything != relay.TensorType((n, 2))
    assert np.zeros(2, joined.checked_type.dtype).dtype == np.float32


def test_an_operator_takes_attributes_before_it_is_called(relay):
    tvm.ir.register_op_attr("nn.upsampling3d", "target.of_this_test", True)
    assert tvm.ir.Op.get("nn.upsampling3d").get_attr("target.of_this_test")
    assert tvm.ir.Op.get("nn.upsampling3d").get_attr("no.such.attribute") is None
    x = relay.var("x", shape=(1, 2, 2, 2, 2))
    assert relay.nn.upsampling3d(x).op.get_attr("target.of_this_test")


def test_an_attribute_set_for_a_while_is_taken_back(relay):
    from tvm.relay.testing.temp_op_attr import TempOpAttr

    def legal(_attrs, inputs, _types):
        return relay.multiply(inputs[0], relay.const(2.0))

    x = relay.var("x", shape=(2,))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(x)))
    with TempOpAttr("nn.relu", "FTVMLegalize", legal):
        inside = relay.transform.Legalize()(mod)
    assert inside["main"].body.op.name == "multiply"
    assert relay.transform.Legalize()(mod)["main"].body.op.name == "nn.relu"


def test_a_mutated_call_keeps_its_attributes(relay):
    x, y = relay.var("x", shape=(2, 3)), relay.var("y", shape=(4, 3))
    call = relay.nn.softmax(x, axis=0)
    again = relay.Call(call.op, [y], call.attrs, call.type_args)
    assert again.attrs.axis == 0 and [int(n) for n in again.checked_type.shape] == [4, 3]


def test_scopes_are_built_in_the_order_in_which_they_happen(relay):
    cond, x = relay.var("cond", "bool"), relay.var("x", shape=(2,))
    builder = relay.ScopeBuilder()
    with builder.if_scope(cond):
        twice = builder.let("twice", relay.add(x, x))
        builder.ret(relay.add(twice, twice))
    with builder.else_scope():
        builder.ret(x)
    run = relay.create_executor("vm").evaluate(relay.Function([cond, x], builder.get()))
    ones = np.ones(2, "float32")
    np.testing.assert_array_equal(run(np.array(True), ones).numpy(), 4 * ones)
    np.testing.assert_array_equal(run(np.array(False), ones).numpy(), ones)


def test_importers_helpers_tell_types_shapes_and_values():
    from tvm import relay
    from tvm.relay.frontend import common

    x = relay.var("x", shape=(2, 3))
    assert common.infer_shape(relay.transpose(x)) == (3, 2)
    assert common.infer_channels(x) == 2
    doubled = relay.add(x, x)
    ones = np.ones((2, 3), "float32")
    np.testing.assert_array_equal(common.infer_value(doubled, {"x": ones}).numpy(), 2 * ones)
    value, known = common.try_infer_value(doubled)
    assert not known and value is doubled
    parts = common.unbind(x, axis=0)
    assert len(parts) == 2 and common.infer_shape(parts[1]) == (3,)


def test_executor_options_are_checked_and_reach_the_build(relay):
    executor = relay.backend.Executor("graph", {"link-params": True})
    assert executor["link-params"] and "interface-api" not in executor
    assert (
        relay.backend.Executor.list_registered_options("aot")["interface-api"] == "runtime.String"
    )
    with pytest.raises(tvm.TVMError, match='Executor "woof" is not defined'):
        relay.backend.Executor("woof")
    with pytest.raises(tvm.TVMError, match="should have type"):
        relay.backend.Executor("graph", {"link-params": "yes"})
    x = relay.var("x", shape=(2,))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(x)))
    relay.build(mod, "llvm", executor=executor, runtime=relay.backend.Runtime("cpp"))
    with pytest.raises(BuildError, match="crt"):
        relay.build(mod, "llvm", runtime=relay.backend.Runtime("crt"))


def test_the_targets_of_tests_are_those_that_run_here():
    import tvm.testing

    assert ("llvm", tvm.cpu()) in tvm.testing.enabled_targets()
    assert tvm.testing.device_enabled("llvm -mcpu=core-avx2")
    assert not tvm.testing.device_enabled("hexagon")


def test_a_name_of_an_absent_module_refuses_when_it_is_called():
    from tvm.relay.op.strategy import conv2d_strategy

    with pytest.raises(LegacyImportError, match=r"tvm\.relay\.op\.strategy\.conv2d_.* is gone"):
        conv2d_strategy(None)


def test_logsumexp_is_made_of_relays_operators(relay):
    x = relay.var("x", shape=(2, 5))
    made = relay.logsumexp(x, axis=1)
    assert made.op.name == "squeeze" and "axis=" in made.astext()
    assert len(relay.mean_std(x, axis=1)) == 2
    values = np.linspace(-4, 4, 10, dtype="float32").reshape(2, 5)
    run = relay.create_executor("graph").evaluate(relay.Function([x], made))
    np.testing.assert_allclose(run(values).numpy(), np.log(np.exp(values).sum(1)), rtol=1e-6)


def test_a_deformable_convolution_types_its_offsets(relay):
    x, offset, weight = relay.var("x", shape=(2, 4, 9, 8)), relay.var("o"), relay.var("w")
    relay.nn.deformable_conv2d(
        x, offset, weight, kernel_size=(3, 3), channels=6, strides=(2, 1), deformable_groups=2
    )
    assert [int(n) for n in offset.checked_type.shape] == [2, 36, 4, 6]


def test_a_float_is_limited_by_whole_numbers(relay):
    x = relay.var("x", shape=(3,))
    run = relay.create_executor("graph").evaluate(relay.Function([x], relay.clip(x, 0, 6)))
    np.testing.assert_array_equal(run(np.array([-1, 2.5, 9], "float32")).numpy(), [0, 2.5, 6])


def test_an_expression_is_shown_after_its_free_variables(relay):
    x, y = relay.var("x", shape=(3, 2)), relay.var("y")
    one = relay.const(1.0)
    shared = relay.add(x, one)
    expr = relay.multiply(shared, shared)
    text = expr.astext()
    assert text.splitlines()[1].startswith("free_var %x: Tensor[(3, 2), float32]")
    assert text.splitlines()[2].startswith("%0 = add(%x, 1f")
    assert text.splitlines()[3].startswith("multiply(%0, %0)")
    for each in (expr, one, relay.Tuple([shared, x]), relay.const(np.eye(2, dtype="float32"))):
        tvm.ir.assert_structural_equal(relay.parse_expr(each.astext()), each, map_free_vars=True)
    assert relay.Function([y], relay.add(y, y)).astext().startswith('#[version = "0.0.5"]\nfn (%y)')


def test_a_window_is_always_shown(relay):
    x = relay.var("x", shape=(1, 4, 8, 8))
    assert "pool_size=[1, 1]" in relay.nn.max_pool2d(x).astext()


def test_attributes_that_differ_in_the_tenth_digit_are_equal(relay):
    def normalized(epsilon):
        x, p = relay.var("x", shape=(1, 4)), [relay.var(f"p{i}", shape=(4,)) for i in range(4)]
        return relay.Function([x, *p], relay.nn.batch_norm(x, *p, epsilon=epsilon)[0])

    assert tvm.ir.structural_equal(normalized(1e-5), normalized(float(np.float32(1e-5))))
    assert not tvm.ir.structural_equal(normalized(1e-5), normalized(2e-5))


def test_shapes_are_sliced_and_function_types_have_their_old_names(relay):
    x = relay.var("x", shape=(1, 2, 3))
    assert [int(n) for n in x.checked_type.shape[-2:]] == [2, 3]
    ty = tvm.IRModule.from_expr(relay.Function([x], relay.exp(x)))["main"].checked_type
    assert ty.arg_types[0] == ty.ret_type == x.checked_type


def test_truth_values_have_a_smallest_and_a_largest(relay):
    x = relay.var("x", shape=(2, 3), dtype="bool")
    values = np.array([[True, True, True], [True, False, True]])
    for function, expected in ((relay.min, values.min(1)), (relay.max, values.max(1))):
        run = relay.create_executor("graph").evaluate(relay.Function([x], function(x, axis=1)))
        np.testing.assert_array_equal(run(values).numpy(), expected)


@pytest.mark.parametrize(
    ("entries", "expected"), [([[0, 1], [2, 0]], [0, 1, 0, 1]), ([], [1, 1, 1, 1])]
)
def test_rows_that_were_empty_are_told_by_truth_values(relay, entries, expected):
    indices = np.array(entries, "int64").reshape(-1, 2)
    values = np.arange(5, 5 + len(entries), dtype="int64")
    operands = (indices, values, np.array([4, 2], "int64"), np.array([9], "int64"))
    params = [
        relay.var(f"p{i}", shape=each.shape, dtype="int64") for i, each in enumerate(operands)
    ]
    made = relay.sparse_fill_empty_rows(*params)
    assert made[2].checked_type.dtype == "bool"
    run = relay.create_executor("graph").evaluate(relay.Function(params, made))
    positions, _, found = run(*operands)
    np.testing.assert_array_equal(found.numpy(), np.array(expected, bool))
    assert positions.shape[0] == len(entries) + sum(expected)


def test_targets_know_their_hosts():
    target, host = tvm.target.Target.canon_target_and_host("cuda -arch=sm_80", "llvm")
    assert str(target.kind.name) == "cuda" and str(target.host.kind.name) == str(host.kind.name)
    both = tvm.target.Target.canon_multi_target_and_host({"cpu": "llvm", "gpu": "cuda -arch=sm_80"})
    assert [str(each.kind.name) for each in both] == ["llvm", "cuda"]
    assert tvm.target.Target.canon_target(None) is None


def test_executables_run_under_their_old_names(relay):
    from tvm.runtime import vm

    x = relay.var("x", shape=(3,))
    executable = relay.vm.compile(tvm.IRModule.from_expr(relay.Function([x], relay.exp(x))), "llvm")
    code, library = executable.save()
    loaded = vm.Executable.load_exec(code, library)
    found = vm.VirtualMachine(loaded, tvm.cpu()).run(np.zeros(3, "float32"))
    np.testing.assert_array_equal(found.numpy(), np.ones(3))
    assert isinstance(vm.VirtualMachine(executable, tvm.cpu()), vm.VirtualMachine)
    assert isinstance(executable.mod, relay.backend.executor_factory.GraphExecutorFactoryModule)


def test_a_pass_instrument_is_entered_and_left_once(relay):
    seen = []

    @tvm.instrument.pass_instrument
    class Noting:
        def enter_pass_ctx(self):
            seen.append("enter")

        def exit_pass_ctx(self):
            seen.append("exit")

    x = relay.var("x", shape=(2,))
    value = relay.add(relay.const(np.ones(2, "float32")), relay.const(1.0))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.multiply(x, value)))
    with tvm.transform.PassContext(opt_level=3, instruments=[Noting()]):
        mod = relay.transform.FoldConstant()(mod)
    assert seen == ["enter", "exit"] and "add(" not in mod.astext(False)


def test_operators_know_how_they_fuse(relay):
    known = [relay.op.get(name).get_attr("TOpPattern") for name in ("nn.relu", "add", "nn.conv2d")]
    assert known == [0, 1, 4]
    assert relay.op.get("add").get_attr("no_such_thing") is None


def test_devices_and_layouts_have_their_old_names():
    device = tvm.device("llvm -mcpu=core-avx2", 0)
    assert (device.device_type, device.device_id) == (tvm.cpu().device_type, 0)
    assert str(tvm.tir.layout("NCHW")) == "SLayout(NCHW)"
    assert "NCHW16c" in str(tvm.tir.bijective_layout("NCHW", "NCHW16c"))


def test_the_text_of_an_expression_is_read_as_a_module_with_main(relay):
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    expr = relay.multiply(relay.add(x, y), x)
    expected = tvm.IRModule.from_expr(relay.Function([x, y], expr))
    for text in (expr.astext(), relay.Function([x, y], expr).astext()):
        tvm.ir.assert_structural_equal(relay.fromtext(text), expected)


def test_a_module_tells_global_variables_the_types_of_its_functions(relay):
    x = relay.var("x", shape=(4,))
    leaf = relay.GlobalVar("leaf")
    mod = tvm.IRModule({})
    mod[leaf] = relay.Function([x], relay.exp(x))
    y = relay.var("y", shape=(4,))
    mod["main"] = relay.Function([y], leaf(y) + y)
    run = relay.create_executor("graph", mod).evaluate()
    np.testing.assert_allclose(run(np.zeros(4, "float32")).numpy(), np.ones(4))


def test_contexts_hold_the_settings_of_relays_passes(relay):
    key = "relay.ToMixedPrecision.keep_orig_output_dtype"
    x, w = relay.var("x", shape=(2, 3)), relay.var("w", shape=(3, 3))
    mod = tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.dense(x, w)))
    outer = tvm.transform.PassContext(config={key: True})
    for config, wanted in (({key: True}, "float32"), ({key: False}, "float16"), (None, "float16")):
        with outer, tvm.transform.PassContext(config=config):
            short = relay.transform.ToMixedPrecision()(mod)
        assert str(short["main"].ret_ty.dtype) == wanted
    with outer:
        assert str(relay.transform.ToMixedPrecision()(mod)["main"].ret_ty.dtype) == "float32"


def test_rules_on_integers_find_affine_types_where_they_were(relay):
    def rule(expr, types):
        affine = types[expr.args[0]]
        made = tvm.ir.TensorAffineType(affine.scale, affine.zero_point, affine.dtype)
        return [relay.negative(expr.args[0]), made]

    relay.op.register_fake_quantization_to_integer("cos", rule)
    x = relay.var("x", shape=(4,), dtype="int8")
    numbers = relay.const(1.0), relay.const(0)
    body = relay.qnn.op.quantize(relay.cos(relay.qnn.op.dequantize(x, *numbers)), *numbers)
    mod = relay.transform.FakeQuantizationToInteger(hard_fail=True)(tvm.IRModule.from_expr(body))
    assert dict(relay.analysis.list_op_freqs(mod)) == {"negative": 1}


def test_a_call_of_a_global_function_gives_its_arguments_types(relay):
    name, taken = relay.GlobalVar("f"), relay.var("p", shape=(2, 3))
    module = tvm.IRModule()
    module[name] = relay.Function([taken], relay.Tuple([taken, taken]))
    argument = relay.var("x")
    field = relay.TupleGetItem(name(argument), 1)
    assert argument.ty == field.ty == relay.TensorType((2, 3), "float32")


def test_several_results_are_joined_one_by_one(relay):
    parts = relay.split(relay.var("x", shape=(4, 2)), 2)
    joined = relay.concatenate(parts, 0).args[0]
    assert [int(field.index) for field in joined.fields] == [0, 1]


def test_executors_tell_maps_of_shapes(relay):
    x = relay.var("x", shape=(2, 3))
    library = relay.build(tvm.IRModule.from_expr(relay.Function([x], relay.abs(x))), "llvm")
    shapes, dtypes = tvm.contrib.graph_executor.GraphModule(
        library["default"](tvm.cpu())
    ).get_input_info()
    assert isinstance(shapes, tvm.container.Map) and isinstance(dtypes, tvm.container.Map)
    assert shapes["x"] == tvm.runtime.container.ShapeTuple([2, 3])


def test_what_repeats_a_results_type_is_not_compared(relay):
    data, weight = relay.var("x", shape=(2, 3)), relay.var("w", shape=(4, 3))
    bias = relay.var("b", shape=(4,))

    def layer(axis, **attributes):
        product = relay.nn.dense(data, weight, **attributes)
        return relay.Function([data, weight, bias], relay.nn.bias_add(product, bias, axis=axis))

    full = layer(1, units=4, out_dtype="float32").with_attr("num_input", 1)
    tvm.ir.assert_structural_equal(layer(-1), full)
    other = relay.Function([data, weight], relay.nn.dense(data, weight, out_dtype="float64"))
    plain = relay.Function([data, weight], relay.nn.dense(data, weight))
    assert not tvm.ir.structural_equal(plain, other)


def test_kernels_are_compared_without_their_names():
    a = tvm.te.placeholder((4,), name="A")
    made = tvm.te.create_prim_func([a, tvm.te.compute((4,), lambda i: a[i] + 1.0, name="B")])
    other = tvm.te.create_prim_func([a, tvm.te.compute((4,), lambda i: a[i] + 2.0, name="B")])
    named = made.with_attr("global_symbol", "add_one").without_attr("tirx.noalias")
    tvm.ir.assert_structural_equal(made, named)
    assert not tvm.ir.structural_equal(made, other)


def test_a_let_has_its_variable_and_its_value(relay):
    x, v = relay.var("x", shape=(2,)), relay.var("v")
    let = relay.Let(v, relay.nn.relu(x), relay.add(v, v))
    assert isinstance(let, relay.Let) and let.var.same_as(v)
    assert let.value.op.name == "nn.relu" and let.body.op.name == "add"
    two = tvm.relax.SeqExpr([*let.blocks, *let.blocks], let.body)
    with pytest.raises(AttributeError, match="var"):
        two.var  # noqa: B018


def test_errors_of_texts_are_diagnostic_errors(relay):
    with pytest.raises(tvm.error.DiagnosticError):
        relay.parse_expr("let x = 1; ()")
    try:
        relay.fromtext("nothing")
    except tvm.error.DiagnosticError as error:
        assert "version" in str(error)


def test_functions_over_data_are_compared(relay):
    text = """#[version = "0.0.5"]
    type Box[T] { box(T) }
    def @pack[T](%x: T) -> Box[T] { box(%x) }
    """
    mod = relay.fromtext(text)
    tvm.ir.assert_structural_equal(relay.fromtext(mod.astext()), mod)
    other = relay.fromtext(text.replace("-> Box[T] { box(%x) }", "-> T { %x }"))
    with pytest.raises(ValueError, match="pack"):
        tvm.ir.assert_structural_equal(mod, other)


def test_print_shows_relays_text_of_what_calls_relays_operators(relay):
    x = relay.var("x", shape=(2,))
    made = relay.nn.relu(relay.add(x, x))
    assert (
        str(made).splitlines()[0]
        == "free_var %x: Tensor[(2), float32] /* ty=Tensor[(2), float32] */;"
    )
    assert "nn.relu(%0)" in str(made)
    function = relay.Function([x], made)
    assert str(function).startswith("fn (%x: Tensor[(2), float32]")
    assert "nn.relu(%0)" in str(function.body)
    module = tvm.IRModule.from_expr(function)
    assert str(module).startswith("def @main(%x: Tensor[(2), float32]")
    assert f"{relay.If(relay.const(True), x, made)}".count("nn.relu") == 1
    assert "R.function" in str(relay.to_relax(module))
    legacy.uninstall()
    assert "R.function" in str(module)


def test_the_text_of_a_function_parses_to_a_function_that_builds():
    with legacy.installed():
        from tvm import relay

        text = "fn (%x: Tensor[(2), float32]) { %0 = nn.relu(%x); (%0, add(%0, %x)) }"
        function = tvm.parser.parse_expr(f'#[version = "0.0.5"]\n{text}')
        assert isinstance(function, relay.Function)
        module = tvm.contrib.graph_executor.GraphModule(
            relay.build(function, "llvm")["default"](tvm.cpu())
        )
        module.run(x=np.array([-1, 2], "float32"))
        np.testing.assert_array_equal(module.get_output(1).numpy(), [-1, 4])


def test_passes_of_the_context_see_the_networks_kernels_and_their_errors_come_through():
    with legacy.installed():
        from tvm import relay

        seen = []

        @tvm.tir.transform.prim_func_pass(opt_level=0)
        def look(function, mod, context):
            seen.append(str(function.attrs["global_symbol"]))
            return function

        @tvm.tir.transform.prim_func_pass(opt_level=0)
        def fail(function, mod, context):
            raise KeyError("a mistake of the pass")

        x, w = relay.var("x", shape=(1, 10)), relay.var("w", shape=(20, 10))
        mod = tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.relu(relay.nn.dense(x, w))))
        for phase in range(4):
            with tvm.transform.PassContext(config={"tir.add_lower_pass": [(phase, look)]}):
                relay.build(mod, target="llvm")
        assert len(seen) == 4 and all("matmul" in name for name in seen)
        failing = tvm.transform.PassContext(config={"tir.add_lower_pass": [(0, fail)]})
        with failing, pytest.raises(KeyError, match="a mistake of the pass"):
            relay.build(mod, target="llvm")


def test_natural_numbers_are_added_to_a_prelude():
    with legacy.installed():
        from tvm import relay
        from tvm.relay.prelude import Prelude
        from tvm.relay.testing import add_nat_definitions, count, make_nat_expr

        prelude = Prelude(tvm.IRModule())
        add_nat_definitions(prelude)
        total = prelude.add(make_nat_expr(prelude, 2), prelude.double(prelude.s(prelude.z())))
        prelude.mod["main"] = relay.Function([], total)
        evaluate = relay.create_executor("debug", mod=prelude.mod, device=tvm.cpu(), target="llvm")
        assert count(prelude, evaluate.evaluate()()) == 4


def test_loads_and_regions_of_buffers_are_instances_of_their_old_classes():
    from tvm import te, tir
    from tvm.tir.expr import BufferLoad
    from tvm.tir.stmt import BufferRegion

    buffer = tir.decl_buffer((4,), "float32", name="A")
    load, region = tir.BufferLoad(buffer, [1]), tir.BufferRegion(buffer, [tvm.ir.Range(0, 2)])
    assert isinstance(load, tir.BufferLoad) and isinstance(load, BufferLoad)
    assert isinstance(region, tir.BufferRegion) and isinstance(region, BufferRegion)
    assert load.buffer.same_as(buffer) and region.buffer.same_as(buffer)
    assert isinstance(buffer, tir.Buffer) and not isinstance(te.var("n"), tir.Buffer)
    assert not isinstance(load, (tir.ProducerLoad, tir.BufferRegion))


def test_loads_in_computes_have_a_producer_and_indices():
    from tvm import te, tir

    data = te.placeholder((4, 4), name="A")
    result = te.compute((4, 4), lambda i, j: data[j, i] + 1.0)
    load = result.op.body[0].a
    i, j = (axis.var for axis in result.op.axis)
    assert isinstance(load, tir.ProducerLoad) and not isinstance(tir.exp(i), tir.ProducerLoad)
    assert load.producer.op.name == "A" and [*load.indices] == [j, i]
    assert tir.ProducerLoad(data, [i, j]).producer.op.name == "A"
    with pytest.raises(AttributeError, match="indices"):
        tir.exp(tir.const(1.0, "float32")).indices  # noqa: B018


def test_functions_of_schedules_have_a_buffer_map_and_are_flattened_by_a_pass():
    from tvm import te, tir

    n = te.var("n")
    data = te.placeholder((4, 8), name="A")
    result = te.compute((4, 8), lambda i, j: data[i, j] + n)
    schedule = te.create_schedule(result.op)
    args = [data, result, n]
    module = tvm.driver.build_module.form_irmodule(schedule, args, "main", None)
    func = module["main"]
    shapes = [tuple(map(int, func.buffer_map[each].shape)) for each in func.params[:2]]
    assert shapes == [(4, 8), (4, 8)]
    assert func.params[2] not in func.buffer_map
    flat = tir.transform.StorageFlatten(64)(module)["main"]
    stores = []

    def visit(node):
        if isinstance(node, tir.BufferStore):
            stores.append(node)

    tir.stmt_functor.post_order_visit(flat.body, visit)
    assert [len(store.indices) for store in stores] == [1]


def test_errors_of_cpp_code_are_tvm_errors_of_their_kind():
    from tvm import tir

    with pytest.raises(tvm.TVMError) as caught:
        tvm.arith.Analyzer().rewrite_simplify(1 * tir.Cast("bool", 77))
    assert isinstance(caught.value, ValueError)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert type(copy) is ValueError and copy.args == caught.value.args
    legacy.uninstall()
    with pytest.raises(AttributeError) as plain:
        tvm.ir.Op.get("no such")
    assert not isinstance(plain.value, RuntimeError)
