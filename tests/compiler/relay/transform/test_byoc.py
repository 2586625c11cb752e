import json
import re
from collections import Counter

import numpy as np
import pytest
import tvm
import tvm_ffi

from compiler import relay
from compiler.errors import RelayError
from compiler.lowering.bind import bind_params
from compiler.partition import subgraphs
from compiler.relay import dialect, transform
from compiler.relay.dataflow_pattern import is_constant, is_op, wildcard
from compiler.relay.nested_expressions import nested, post_order
from compiler.relay.relay_to_relax import function_of, lower
from compiler.relay.transform.regions import begin, end
from compiler.runtime import graph_executor
from tests.compiler.relay.oracle import read, run

CASES = json.loads(read("byoc.json.gz"))


def pattern_of(form):
    if form == "*":
        return wildcard()
    if form == "const":
        return is_constant()
    return is_op(form["op"])(*map(pattern_of, form["args"]))


def check_of(form):
    def check(root):
        while dialect.relay_name(root) != form["on_op"]:
            root = root.args[0]
        return all(root.attrs[key] == value for key, value in form["attr_equals"].items())

    return [] if form is None else [check]


def canonical(mod):
    """Text with bindings in the order of their use, without types, comments and names."""
    functions = {
        gvar.name_hint: function_of(function.params, nested(function), function.attrs)
        for gvar, function in mod.functions_items()
    }
    text = re.sub(r"/\*.*?\*/", "", relay.astext(tvm.IRModule(functions), False))
    text = re.sub(r"meta\[relay.Constant\]\[\d+\]", "CONSTANT", re.sub(r"\s+", " ", text))
    names = {}
    return re.sub(r"%\w+", lambda found: names.setdefault(found[0], f"%v{len(names)}"), text)


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_every_pass_leaves_what_relays_pass_left(case):
    mod = relay.fromtext(case["input"])
    for compiler, operators in case["compilers"].items():
        for name in operators:
            tvm.ir.register_op_attr(
                dialect.operator(name).name, f"target.{compiler}", lambda _: True
            )
    for number, (name, arguments) in enumerate(case["passes"]):
        if name == "bind_params":
            values = {
                each: np.array(case["inputs"][each], "float32") for each in arguments["params"]
            }
            mod, _ = bind_params(mod, values)
        elif name == "MergeComposite":
            table = [
                (row[0], pattern_of(row[1]), *check_of(row[2])) for row in arguments["patterns"]
            ]
            mod = transform.MergeComposite(table)(mod)
        else:
            mod = getattr(transform, name)(**arguments)(mod)
        step = [text for key, text in case["steps"].items() if key.startswith(f"{number}_")]
        if step and name != "PartitionGraph":
            assert canonical(mod) == canonical(relay.fromtext(step[0])), name
    assert canonical(mod) == canonical(relay.fromtext(case["result"]))

    regions = subgraphs(lower(mod))
    assert {region.backend for region in regions} == set(case["compilers"])
    values = [np.array(case["inputs"][str(var.name)], "float32") for var in mod["main"].params]
    for got, wanted in zip(run(mod, values), case["outputs"]):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_the_library_of_a_partitioned_module_knows_its_subgraphs():
    (case,) = [case for case in CASES if case["name"] == "multi_output"]
    mod = relay.fromtext(case["result"])
    library = relay.build(mod, "llvm")
    assert set(library.partition_info()) == {
        "tvmgen_default_terra_main_0",
        "tvmgen_default_terra_main_2",
    }
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(**{name: np.array(value, "float32") for name, value in case["inputs"].items()})
    for index, wanted in enumerate(case["outputs"]):
        np.testing.assert_allclose(module.get_output(index).numpy(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bind", [True, False])
def test_constants_that_enter_a_region_are_bound_or_passed(bind):
    x = relay.var("x", shape=(2, 3))
    weight = np.arange(6, dtype="float32").reshape(2, 3)
    product = relay.multiply(begin(x, "terra"), begin(relay.const(weight), "terra"))
    mod = tvm.IRModule({"main": relay.Function([x], end(product, "terra"))})
    mod = transform.PartitionGraph(bind_constants=bind)(mod)
    (function,) = [f for v, f in mod.functions_items() if v.name_hint != "main"]
    assert len(function.params) == (1 if bind else 2)
    value = np.ones((2, 3), "float32")
    np.testing.assert_array_equal(run(mod, [value])[0], weight)


def test_the_branches_of_a_condition_are_marked_for_themselves():
    for name in ("exp", "tanh"):
        tvm.ir.register_op_attr(dialect.operator(name).name, "target.branches", lambda _call: True)
    condition, x = relay.var("c", "bool"), relay.var("x", shape=(4,))
    body = relay.exp(relay.If(condition, relay.tanh(x), relay.sqrt(x)))
    mod = tvm.IRModule.from_expr(relay.Function([condition, x], body))
    marked = transform.AnnotateTarget("branches")(mod)
    compilers = []
    relay.analysis.post_order_visit(
        marked["main"],
        lambda node: compilers.append(str(node.attrs["compiler"])) if is_mark(node) else None,
    )
    assert sorted(compilers) == ["branches"] * 4 + ["default"] * 2


def is_mark(node):
    return dialect.is_relay(node) and str(node.op.name).startswith("annotation.compiler_")


def test_marks_of_an_earlier_run_stay():
    for name, compiler in (("nn.relu", "first"), ("tanh", "second")):
        attribute = f"target.{compiler}"
        tvm.ir.register_op_attr(dialect.operator(name).name, attribute, lambda _call: True)
    x = relay.var("x", shape=(4,))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.tanh(relay.nn.relu(x))))
    once = transform.AnnotateTarget(["first", "second"])(mod)
    assert tvm_ffi.structural_equal(once, transform.AnnotateTarget(["first", "second"])(once))
    compilers = [each for name in ("first", "second") for each in (name, name)]
    marks = re.findall(r'compiler="(\w+)"', relay.astext(once))
    assert marks == compilers


def taken(mod):
    """Per compiler the operators of its functions, and those that no compiler took."""
    found = {}
    for _, function in mod.functions_items():
        compiler = str((function.attrs or {}).get("Compiler", ""))
        found.setdefault(compiler, Counter()).update(
            map(dialect.relay_name, filter(dialect.is_relay, post_order(nested(function))))
        )
    assert not any("annotation." in name for names in found.values() for name in names)
    return found


def two_compilers(first, second):
    """tanh is one's; exp and add are the other's; a split, a tuple and a sum are left."""
    for name, compiler in (("tanh", first), ("exp", second), ("add", second)):
        attribute = f"target.{compiler}"
        tvm.ir.register_op_attr(dialect.operator(name).name, attribute, lambda _call: True)
    x = relay.var("x", shape=(4,))
    inner = relay.add(relay.exp(relay.tanh(x)), x)
    low, high = relay.split(inner, 2)
    left = relay.concatenate(relay.Tuple([relay.tanh(high), relay.negative(low)]), 0)
    return tvm.IRModule.from_expr(relay.Function([x], relay.add(inner, relay.exp(left))))


MERGE, PARTITION = transform.MergeCompilerRegions, transform.PartitionGraph


@pytest.mark.parametrize("tuples", [True, False], ids=["with tuples", "calls alone"])
@pytest.mark.parametrize(
    "between", [(), (MERGE,), (MERGE, PARTITION)], ids=["", "merged", "partitioned"]
)
def test_compilers_may_be_annotated_one_after_the_other(between, tuples):
    names = [f"{each}_{len(between)}_{tuples}" for each in ("first", "second")]
    mod = two_compilers(*names)
    together = tvm.transform.Sequential(
        [transform.AnnotateTarget(names, tuples), MERGE(), PARTITION()]
    )(mod)
    for order in (names, names[::-1]):
        steps = []
        for each in order:
            steps += [transform.AnnotateTarget(each, tuples), *(step() for step in between)]
        apart = tvm.transform.Sequential([*steps, MERGE(), PARTITION()])(mod)
        assert taken(apart) == taken(together)
        value = np.float32([0.1, -0.2, 0.3, 0.4])
        np.testing.assert_allclose(run(apart, [value])[0], run(mod, [value])[0], rtol=1e-5)


def test_a_compiler_that_takes_nothing_leaves_the_module_as_it_was():
    x = relay.var("x", shape=(4,))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.tanh(relay.exp(x))))
    steps = [transform.AnnotateTarget("takes_nothing"), MERGE(), PARTITION()]
    assert canonical(tvm.transform.Sequential(steps)(mod)) == canonical(mod)


def test_regions_on_both_sides_of_a_bare_tuple_do_not_become_one():
    attribute = "target.around"
    for name in ("abs", "add"):
        tvm.ir.register_op_attr(dialect.operator(name).name, attribute, lambda _call: True)
    x = relay.var("x", shape=(4,))
    first = relay.abs(x)
    middle = relay.split(relay.concatenate(relay.Tuple([first, relay.exp(first)]), 0), 2)[1]
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.add(first, middle)))
    steps = [transform.AnnotateTarget("around", False), MERGE(), PARTITION()]
    made = tvm.transform.Sequential(steps)(mod)
    assert len(made.functions) == 3
    value = np.float32([0.1, -0.2, 0.3, 0.4])
    np.testing.assert_allclose(run(made, [value])[0], run(mod, [value])[0], rtol=1e-5)


def test_results_of_a_region_follow_their_readers_and_its_compiler_optimizes_it():
    x = relay.var("x", shape=(2,))
    first = relay.abs(begin(x, "folds"))
    second = relay.add(relay.nn.relu(first), relay.multiply(*map(relay.const, (2.0, 1.0))))
    body = relay.add(end(second, "folds"), relay.tanh(end(first, "folds")))
    mod = tvm.IRModule.from_expr(relay.Function([x], body))
    mod["unused"] = relay.Function([x], relay.exp(x))
    tvm.register_global_func(
        "relay.ext.folds.optimize", lambda mod: transform.FoldConstant()(mod), override=True
    )
    made = transform.PartitionGraph()(mod)
    own = made["tvmgen_default_folds_main_0"]
    text = relay.astext(tvm.IRModule({"main": own}))
    assert "multiply" not in text and str(own.attrs["Compiler"]) == "folds"
    fused = transform.FuseOps(2)(made)["tvmgen_default_folds_main_0"]
    assert tvm_ffi.structural_equal(fused, own)
    value = np.float32([-1, 2])
    run_main = relay.create_executor("vm", mod=made, device=tvm.cpu(), target="llvm").evaluate()
    expected = np.maximum(np.abs(value), 0) + 2 + np.tanh(np.abs(value))
    np.testing.assert_allclose(run_main(value).numpy(), expected, rtol=1e-6)
    main = nested(made["main"])
    assert [int(main.args[0].index), int(main.args[1].args[0].index)] == [0, 1]


def test_a_check_of_tvm_0_7_takes_attributes_and_operands():
    seen = []

    def check(attrs, args):
        seen.append((float(attrs["a_max"]), len(args)))
        return True

    tvm.ir.register_op_attr(dialect.operator("clip").name, "target.old_check", check)
    x = relay.var("x", shape=(4,))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.clip(x, 0.0, 6.0)))
    assert 'compiler="old_check"' in relay.astext(transform.AnnotateTarget("old_check")(mod))
    assert seen == [(6.0, 1)]

    def wrong(call):
        return len(3)

    tvm.ir.register_op_attr(dialect.operator("clip").name, "target.wrong_check", wrong)
    with pytest.raises(TypeError, match="no len"):
        transform.AnnotateTarget("wrong_check")(mod)


def test_an_error_inside_of_a_pass_keeps_its_class():
    x = relay.var("x", shape=(4,))
    mod = tvm.IRModule.from_expr(relay.Function([x], end(relay.exp(begin(x, "one")), "other")))
    with pytest.raises(RelayError, match="ends no region"):
        tvm.transform.Sequential([transform.PartitionGraph()])(mod)
