"""Whatever Relay's tools do, they do it to every importer's modules as to the builder's."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import tvm
import tvm_ffi
from tvm import relax

from compiler import relay
from compiler.relay import analysis, transform
from compiler.relay.dataflow_pattern import DFPatternCallback, is_constant, is_op, rewrite, wildcard
from compiler.relay.nested_expressions import nested
from compiler.relay.relay_to_relax import function_of
from compiler.relay.testing.temp_op_attr import TempOpAttr
from tests.compiler.relay.importers.networks import NETWORKS
from tests.compiler.relay.importers.writers import IMPORTERS, built

NEEDS = {"pytorch": "torch", "tflite": "tflite"}
CASES = [(importer, network) for importer in IMPORTERS for network in NETWORKS]
every_module = pytest.mark.parametrize(
    ("importer", "network"), CASES, ids=[f"{a}-{b}" for a, b in CASES]
)

Module = tvm.IRModule


@functools.cache
def imported(importer: str, network: str) -> Module:
    if importer in NEEDS:
        reason = f"{importer}'s package is not installed: the extra '{NEEDS[importer]}'"
        pytest.importorskip(NEEDS[importer], reason=reason)
    return canonical(IMPORTERS[importer][0](network))


@functools.cache
def of_builder(importer: str, network: str) -> Module:
    return canonical(built(network, IMPORTERS[importer][1]))


def canonical(mod: Module) -> Module:
    """Bindings in the order of their use; no attributes that only importers set."""
    functions = {}
    for gvar, function in mod.functions_items():
        kept = dict(function.attrs.items()) if function.attrs else {}
        for key in ("num_input", "output_names", "global_symbol"):
            kept.pop(key, None)
        functions[gvar.name_hint] = function_of(function.params, nested(function), kept)
    return tvm.IRModule(functions)


def same(one: Any, other: Any) -> bool:
    """Equal values; equal modules, constants included."""
    if isinstance(one, (Module, relax.Expr)):
        return tvm_ffi.structural_equal(one, other, map_free_vars=True)
    return bool(one == other)


@dataclass(frozen=True)
class Pass:
    """A pass, and what it has something to do in.

    `changes` names networks, "residual", and networks of one importer, "onnx-residual" or
    "!onnx-residual"; `after` names passes that go before it.
    """

    run: Callable[[Module], Module]
    changes: str
    after: tuple[str, ...] = ()

    def expects_change(self, importer: str, network: str) -> bool:
        words, case = self.changes.split(), f"{importer}-{network}"
        return case in words or (network in words and f"!{case}" not in words)


def altered(mod: Module) -> Module:
    def alter(attrs: Any, inputs: Any, _types: Any, _result: Any) -> Any:
        if attrs.data_layout == "NHWC":
            return None
        return relay.nn.conv2d(*inputs, **{**attrs, "data_layout": "NCHW2c"})

    with TempOpAttr("nn.conv2d", "FTVMAlterOpLayout", alter):
        return transform.AlterOpLayout()(mod)


def legalized(mod: Module) -> Module:
    def smooth(_attrs: Any, inputs: Any, _types: Any) -> Any:
        return relay.tanh(inputs[0])

    with TempOpAttr("nn.relu", "FTVMLegalize", smooth):
        return transform.Legalize()(mod)


def other_layout(mod: Module) -> Module:
    wanted = "NHWC" if "NHWC" not in relay.astext(mod, False) else "NCHW"
    return transform.ConvertLayout({"nn.conv2d": [wanted, "default"]})(mod)


@transform.function_pass(opt_level=0)
def relu_is_tanh(function: Any, _mod: Any, _context: Any) -> Any:
    return Tanh().visit(function)


class Tanh(relay.ExprMutator):
    def visit_call(self, call: Any) -> Any:
        new = super().visit_call(call)
        return relay.tanh(new.args[0]) if new.op == relay.op.op.get("nn.relu") else new


class Squared(DFPatternCallback):
    """x times itself in place of a sigmoid or softmax over any product."""

    def __init__(self) -> None:
        super().__init__()
        self.data = wildcard()
        self.pattern = is_op("sigmoid")(self.data) | is_op("nn.softmax")(self.data)

    def callback(self, _pre: Any, _post: Any, node_map: Any) -> Any:
        found = node_map[self.data][0]
        return relay.multiply(found, found)


def rewritten(mod: Module) -> Module:
    return Module({"main": rewrite(Squared(), mod["main"])})


def partitioned(mod: Module) -> Module:
    pattern = is_op("nn.dense")(wildcard(), wildcard()).optional(
        lambda dense: is_op("nn.bias_add")(dense, is_constant())
    )
    return Module({"main": pattern.partition(mod["main"])})


def lifted(mod: Module) -> Module:
    """The functions in an order of their own: the names that they get are not always the same."""
    made = transform.LambdaLift()(mod)
    functions = [f for gvar, f in made.functions_items() if gvar.name_hint != "main"]
    ordered = sorted(functions, key=tvm_ffi.structural_hash)
    return Module({f"lifted{index}": function for index, function in enumerate(ordered)})


def composites(mod: Module) -> Module:
    conv = is_op("nn.bias_add")(is_op("nn.conv2d")(wildcard(), is_constant()), is_constant())
    table = [
        ("mine.conv_bias_act", is_op("nn.relu")(conv) | is_op("clip")(conv)),
        ("mine.conv_bias", conv),
        ("mine.dense", is_op("nn.dense")(wildcard(), wildcard())),
    ]
    return transform.MergeComposite(table)(mod)


EVERY = "residual mobile transformer"
IMAGES = "residual mobile"
SIMPLER = ("SimplifyInference", "FoldConstant")
PASSES = {
    "AlterOpLayout": Pass(altered, "residual mobile !tflite-mobile", ("SimplifyInference",)),
    "AnnotateSpans": Pass(transform.AnnotateSpans(), ""),
    "AnnotateTarget": Pass(transform.AnnotateTarget("mine"), EVERY, ("MergeComposite",)),
    "BackwardFoldScaleAxis": Pass(
        transform.BackwardFoldScaleAxis(), "residual", ("CanonicalizeOps", *SIMPLER)
    ),
    "BatchingOps": Pass(transform.BatchingOps(), "transformer", ("EliminateCommonSubexpr",)),
    "CanonicalizeCast": Pass(
        transform.CanonicalizeCast(), "tflite-transformer", ("ToMixedPrecision",)
    ),
    "CanonicalizeOps": Pass(transform.CanonicalizeOps(), "residual mobile mxnet-transformer"),
    "CombineParallelBatchMatmul": Pass(transform.CombineParallelBatchMatmul(2), ""),
    "CombineParallelConv2D": Pass(transform.CombineParallelConv2D(2), "residual"),
    "CombineParallelDense": Pass(
        transform.CombineParallelDense(3), "transformer", ("EliminateCommonSubexpr",)
    ),
    "CombineParallelDense, flat": Pass(
        transform.CombineParallelDense(3, to_batch=False),
        "transformer",
        ("EliminateCommonSubexpr",),
    ),
    "ConvertLayout": Pass(other_layout, IMAGES),
    "DeadCodeElimination": Pass(transform.DeadCodeElimination(), ""),
    "DefuseOps": Pass(transform.DefuseOps(), EVERY, ("FuseOps",)),
    "DivToMul": Pass(transform.DivToMul(), "mobile transformer"),
    "DynamicToStatic": Pass(transform.DynamicToStatic(), "onnx-transformer"),
    "EliminateCommonSubexpr": Pass(transform.EliminateCommonSubexpr(), "transformer"),
    "FakeQuantizationToInteger": Pass(transform.FakeQuantizationToInteger(), "mobile transformer"),
    "FastMath": Pass(transform.FastMath(), "transformer"),
    "FlattenAtrousConv": Pass(transform.FlattenAtrousConv(), ""),
    "FoldConstant": Pass(transform.FoldConstant(), "onnx-transformer", ("SimplifyInference",)),
    "FoldExplicitPadding": Pass(transform.FoldExplicitPadding(), "mobile"),
    "FoldScaleAxis": Pass(transform.FoldScaleAxis(), "residual", SIMPLER),
    "ForwardFoldScaleAxis": Pass(transform.ForwardFoldScaleAxis(), "residual", SIMPLER),
    "FuseOps": Pass(transform.FuseOps(2), EVERY),
    "InferType": Pass(transform.InferType(), ""),
    "Inline": Pass(transform.Inline(), EVERY, ("PartitionGraph",)),
    "LambdaLift": Pass(lifted, EVERY, ("MergeComposite",)),
    "LazyGradientInit": Pass(transform.LazyGradientInit(), ""),
    "Legalize": Pass(legalized, "residual"),
    "MergeComposite": Pass(composites, EVERY),
    "MergeCompilerRegions": Pass(transform.MergeCompilerRegions(), EVERY, ("AnnotateTarget",)),
    "PartitionGraph": Pass(transform.PartitionGraph(), EVERY, ("MergeComposite", "AnnotateTarget")),
    "RemoveUnusedFunctions": Pass(transform.RemoveUnusedFunctions(), ""),
    "SimplifyExpr": Pass(transform.SimplifyExpr(), "transformer"),
    "SimplifyFCTranspose": Pass(transform.SimplifyFCTranspose([]), ""),
    "SimplifyInference": Pass(
        transform.SimplifyInference(), "residual transformer !tflite-residual !tflite-transformer"
    ),
    "SplitArgs": Pass(transform.SplitArgs(3), "mobile"),
    "ToANormalForm": Pass(transform.ToANormalForm(), ""),
    "ToBasicBlockNormalForm": Pass(transform.ToBasicBlockNormalForm(), ""),
    "ToGraphNormalForm": Pass(transform.ToGraphNormalForm(), ""),
    "ToMixedPrecision": Pass(transform.ToMixedPrecision("float16"), EVERY),
    "ToMixedPrecision, bfloat16": Pass(transform.ToMixedPrecision("bfloat16"), EVERY),
    "a pass of a script": Pass(relu_is_tanh, "residual"),
    "a mutator": Pass(lambda mod: Module({"main": Tanh().visit(mod["main"])}), "residual"),
    "a rewriting callback": Pass(rewritten, "mobile transformer"),
    "a pattern's partition": Pass(partitioned, EVERY),
}
"""Of the passes that change none of the networks, these have nothing to find in any static network
of float32: no extents known at run time, no quantized operators, no phases around a convolution,
no functions that nobody calls, no weights that are parameters. `test_transforms.py` has what they
do find. The others are forms that modules always have."""


@functools.cache
def before(make: Callable[[str, str], Module], importer: str, network: str, name: str) -> Module:
    """The network in front of a pass."""
    mod = make(importer, network)
    for each in steps(name)[:-1]:
        mod = PASSES[each].run(mod)
    return mod


def steps(name: str) -> list[str]:
    """A pass behind all that go before it."""
    return [step for each in PASSES[name].after for step in steps(each)] + [name]


@pytest.fixture(autouse=True)
def _all_levels():
    with tvm.transform.PassContext(opt_level=4):
        yield


@every_module
@pytest.mark.parametrize("name", PASSES)
def test_a_pass_does_what_it_does_to_the_builders_network(
    importer: str, network: str, name: str
) -> None:
    results = []
    for make in (imported, of_builder):
        given = before(make, importer, network, name)
        result = PASSES[name].run(given)
        changed = not same(canonical(given), canonical(result))
        assert changed == PASSES[name].expects_change(importer, network), make.__name__
        results.append(canonical(result))
    assert same(*results)


def named(expr: Any) -> str:
    """A node by its kind: of calls their operator, of variables their name."""
    if isinstance(expr, relax.Call):
        return str(expr.op.name)
    return str(expr.name) if isinstance(expr, (relax.Var, tvm.ir.Op)) else type(expr).__name__


def visited(mod: Module) -> list[str]:
    found: list[str] = []
    analysis.post_order_visit(mod["main"], lambda node: found.append(named(node)))
    return found


class Reader(relay.ExprVisitor):
    """Operators and attributes as a script reads them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Any] = []

    def visit_call(self, call: Any) -> None:
        super().visit_call(call)
        fields = {key: str(getattr(call.attrs, key)) for key in call.attrs.keys()}  # noqa: SIM118
        self.found.append((str(call.op.name), fields, [named(arg) for arg in call.args]))


def read(mod: Module) -> list[Any]:
    reader = Reader()
    reader.visit(mod["main"])
    return reader.found


def matches(mod: Module) -> list[bool]:
    pattern = is_op("nn.bias_add")(wildcard(), is_constant()) | is_op("nn.dense")(
        wildcard(), wildcard()
    ).has_attr({"units": 8})
    found: list[bool] = []
    analysis.post_order_visit(nested(mod["main"]), lambda node: found.append(pattern.match(node)))
    return found


LAYERS = ("nn.conv2d", "nn.dense", "nn.batch_matmul")
ANALYSES: dict[str, Callable[[Module], Any]] = {
    "post_order_visit": visited,
    "ExprVisitor": read,
    "matching": matches,
    "all_vars": lambda mod: [named(var) for var in analysis.all_vars(mod["main"])],
    "bound_vars": lambda mod: [named(var) for var in analysis.bound_vars(mod["main"])],
    "free_vars": lambda mod: [named(var) for var in analysis.free_vars(nested(mod["main"]))],
    "all_dtypes": lambda mod: analysis.all_dtypes(mod["main"]),
    "well_formed": lambda mod: analysis.well_formed(mod["main"]),
    "check_constant": lambda mod: not analysis.check_constant(nested(mod["main"])),
    "check_basic_block_normal_form": lambda mod: analysis.check_basic_block_normal_form(
        mod["main"]
    ),
    "list_op_freqs": analysis.list_op_freqs,
    "count_layers": lambda mod: analysis.count_layers(mod, LAYERS),
    "get_total_mac_number": lambda mod: analysis.get_total_mac_number(mod["main"]),
    "extract_intermdeiate_expr": lambda mod: analysis.extract_intermdeiate_expr(mod, 5),
    "extract_fused_functions": lambda mod: sorted(analysis.extract_fused_functions(mod)),
}
MACS = {
    "residual": 64 * 8 * 4 * 9 + 16 * 8 * (8 + 8 * 9 + 8) + 8 * 5,
    "mobile": 36 * 8 * 9 + 8 * 8 + 36 * 8 * 8 + 24 * 5,
    "transformer": 3 * 6 * 8 * 8 + 2 * 4 * 3 * 3 * 4 + 2 * 6 * 8 * 16,
}


@every_module
@pytest.mark.parametrize("name", ANALYSES)
def test_an_analysis_finds_what_it_finds_in_the_builders_network(
    importer: str, network: str, name: str
) -> None:
    mine, builders = (ANALYSES[name](make(importer, network)) for make in (imported, of_builder))
    assert same(mine, builders)
    assert any(mine) if isinstance(mine, list) else mine
    if name == "get_total_mac_number":
        assert mine == MACS[network]


@every_module
def test_text_and_json_bring_a_network_back(importer: str, network: str) -> None:
    mod = imported(importer, network)
    text = relay.astext(mod)
    for back in (relay.fromtext(text), relay.load_json(tvm.ir.save_json(mod))):
        assert same(canonical(back), mod)
    without_places = re.sub(r" span=[^ ]+", "", text)
    assert without_places == relay.astext(of_builder(importer, network))


@pytest.mark.parametrize("network", ["residual", "mobile"])
@pytest.mark.parametrize("importer", ["onnx", "mxnet", "pytorch"])
def test_another_batch_size(importer: str, network: str) -> None:
    mine, builders = (
        transform.ChangeBatch({mod["main"].params[0]: 0}, 4)(mod)
        for mod in (imported(importer, network), of_builder(importer, network))
    )
    assert same(canonical(mine), canonical(builders))
    assert [int(each) for each in mine["main"].ret_ty.shape] == [4, 5]
