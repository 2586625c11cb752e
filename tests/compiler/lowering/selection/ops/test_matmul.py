"""Relax's matmul through selection, TVM's fusion and scheduling, against numpy in float64."""

import math

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from compiler.lowering.codegen.link import link
from compiler.lowering.selection.context import LoweringContext
from compiler.lowering.selection.layout_cache import LayoutMap
from compiler.lowering.selection.ops.matmul import describe, lower_matmul
from schedules import rules
from schedules.config import ConfigEntity
from schedules.matmul import BatchMatmulWorkload, DenseWorkload, Operand
from schedules.x86.machine.host import host_name

TARGETS = [
    tvm.target.Target({"kind": "llvm", "mcpu": mcpu, "num-cores": 2})
    for mcpu in (host_name(), "x86-64-v3", "x86-64")
]
RNG = np.random.default_rng(0)


@mutator
class _LowerMatmul(PyExprMutator):
    def __init__(self, mod, target, query):
        super().__init__(mod)
        self.target, self.query, self.described = target, query, []

    def visit_call_(self, call):
        call = self.visit_expr_post_order(call)
        if call.op != tvm.ir.Op.get("relax.matmul"):
            return call
        self.described.append(describe(self.builder_, call))
        layouts = LayoutMap(self.builder_, self.visit_expr)
        lowered = lower_matmul(
            call, LoweringContext(self.builder_, layouts, self.target, self.query)
        )
        return call if lowered is None else lowered


def var(name, *shape, dtype="float32"):
    return relax.Var(name, relax.TensorType(shape, dtype))


def module(build, *params):
    """A module whose main is `build(emit, *params)`."""
    builder = relax.BlockBuilder()
    with builder.function("main", list(params)):
        with builder.dataflow():
            result = builder.emit_output(build(builder.emit, *params))
        builder.emit_func_output(result)
    return builder.get()


def lower(mod, target=TARGETS[0], query=None):
    """The fused module and the descriptions of its products."""
    lowering = _LowerMatmul(mod, target, query)
    function = lowering.visit_expr(mod["main"])
    lowering.builder_.update_func(mod.get_global_var("main"), function)
    mod = relax.transform.DeadCodeElimination(["main"])(lowering.builder_.get())
    with target:
        for step in (
            relax.transform.LegalizeOps(),
            relax.transform.AnnotateTIROpPattern(),
            relax.transform.FuseOps(fuse_opt_level=2),
            relax.transform.FuseTIR(),
        ):
            mod = step(mod)
    return mod, lowering.described


def kernels(mod):
    return {
        gvar.name_hint: function
        for gvar, function in mod.functions_items()
        if isinstance(function, tvm.tirx.PrimFunc)
    }


def run(mod, target, *arrays):
    """Result of the fused module and the names of the rules that scheduled its kernels."""
    used = []
    for name, function in kernels(mod).items():
        scheduled = rules.schedule(function, target)
        assert scheduled is not None
        used.append(scheduled.rule)
        kernel = scheduled.func.with_attr("global_symbol", name)
        mod.update_func(mod.get_global_var(name), kernel)
    machine = relax.VirtualMachine(link(mod, target).executable, tvm.cpu())
    return machine["main"](*map(tvm.runtime.tensor, arrays)).numpy(), used


def normal(*shape):
    return RNG.standard_normal(shape).astype("float32")


def assert_close(result, expected):
    assert result.shape == expected.shape
    assert np.abs(result - expected).max() < 1e-5 * np.abs(expected).max()


def gelu(emit, x):
    half = relax.const(0.5, "float32")
    scaled = emit(relax.op.multiply(x, relax.const(math.sqrt(0.5), "float32")))
    gate = emit(relax.op.add(half, emit(relax.op.multiply(half, emit(relax.op.erf(scaled))))))
    return emit(relax.op.multiply(x, gate))


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: str(t.attrs["mcpu"]))
@pytest.mark.parametrize("lead, n, k", [((1, 19), 45, 33), ((2, 7), 64, 20), ((1,), 10, 50)])
def test_dense_bias_gelu_and_residual_are_one_kernel(target, lead, n, k):
    weight, bias = normal(n, k), normal(n)

    def build(emit, x, residual):
        transposed = emit(relax.op.permute_dims(relax.const(weight)))
        shifted = emit(relax.op.add(emit(relax.op.matmul(x, transposed)), relax.const(bias)))
        return relax.op.add(gelu(emit, shifted), residual)

    mod, _ = lower(module(build, var("x", *lead, k), var("r", *lead, n)), target)
    x, residual = normal(*lead, k), normal(*lead, n)
    result, used = run(mod, target, x, residual)
    assert used == ["dense_packed.x86"]
    shifted = x.astype("f8") @ weight.T + bias
    gate = 0.5 + 0.5 * np.vectorize(math.erf)(shifted * math.sqrt(0.5))
    assert_close(result, shifted * gate + residual)


def test_attention_folds_the_head_permutations_and_fuses_scale_and_mask():
    tokens, heads, width = 21, 3, 8
    shape = (1, tokens, heads * width)

    def build(emit, q, k, v, mask):
        def split(x):
            return emit(relax.op.reshape(x, (1, tokens, heads, width)))

        query = emit(relax.op.permute_dims(split(q), [0, 2, 1, 3]))
        key = emit(relax.op.permute_dims(split(k), [0, 2, 1, 3]))
        key = emit(relax.op.permute_dims(key, [0, 1, 3, 2]))
        value = emit(relax.op.permute_dims(split(v), [0, 2, 1, 3]))
        scores = emit(relax.op.matmul(query, key))
        scores = emit(relax.op.divide(scores, relax.const(math.sqrt(width), "float32")))
        weights = emit(relax.op.nn.softmax(emit(relax.op.add(scores, mask)), -1))
        return relax.op.matmul(weights, value)

    parameters = [var(name, *shape) for name in "qkv"]
    mod = module(build, *parameters, var("mask", 1, 1, 1, tokens))
    mod, (scores, values) = lower(mod)
    stored = (1, tokens, heads, width)
    assert scores.workload == BatchMatmulWorkload(
        Operand(stored, (0, 2, 1, 3)), Operand(stored, (0, 2, 3, 1))
    )
    assert values.workload.rhs == Operand(stored, (0, 2, 1, 3))
    assert not any("transpose" in name for name in kernels(mod))

    q, k, v = (normal(*shape) for _ in range(3))
    mask = normal(1, 1, 1, tokens)
    result, used = run(mod, TARGETS[0], q, k, v, mask)
    assert used.count("batch_matmul_tiled.x86") == 2
    q, k, v = (
        array.astype("f8").reshape(tokens, heads, width).transpose(1, 0, 2) for array in (q, k, v)
    )
    logits = q @ k.transpose(0, 2, 1) / math.sqrt(width) + mask[0]
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True) @ v
    assert_close(result, expected[None])


@pytest.mark.parametrize("transposed", [False, True])
def test_a_weight_that_is_a_parameter_is_read_at_run_time(transposed):
    def build(emit, x, w):
        return relax.op.matmul(x, emit(relax.op.permute_dims(w)) if transposed else w)

    shape = (24, 12) if transposed else (12, 24)
    mod, (described,) = lower(module(build, var("x", 2, 5, 12), var("w", *shape)))
    axes = (1, 0) if transposed else (0, 1)
    assert described.workload == DenseWorkload((2, 5), 24, 12, weight=Operand(shape, axes))
    x, w = normal(2, 5, 12), normal(*shape)
    result, used = run(mod, TARGETS[0], x, w)
    assert used == ["dense_tiled.x86"]
    assert_close(result, x.astype("f8") @ (w.T if transposed else w))


def test_a_stack_of_one_matrix_is_a_dense_layer():
    weight = normal(1, 1, 24, 12)

    def build(emit, x):
        matrix = emit(relax.op.permute_dims(relax.const(weight), [0, 1, 3, 2]))
        return relax.op.matmul(x, matrix)

    mod, (described,) = lower(module(build, var("x", 2, 3, 5, 12)))
    assert described.workload == DenseWorkload((2, 3, 5), 24, 12)
    x = normal(2, 3, 5, 12)
    result, used = run(mod, TARGETS[0], x)
    assert used == ["dense_packed.x86"]
    assert_close(result, x.astype("f8") @ weight[0, 0].T)


def test_a_tensor_may_be_both_operands():
    def build(emit, x):
        return relax.op.matmul(x, emit(relax.op.permute_dims(x, [0, 2, 1])))

    mod, _ = lower(module(build, var("x", 3, 9, 17)))
    x = normal(3, 9, 17)
    result, _ = run(mod, TARGETS[0], x)
    assert_close(result, x.astype("f8") @ x.transpose(0, 2, 1))


def test_a_permutation_that_scatters_rows_and_columns_is_executed():
    def build(emit, x, y):
        return relax.op.matmul(x, emit(relax.op.permute_dims(y, [2, 0, 1])))

    mod, (described,) = lower(module(build, var("x", 4, 6, 5), var("y", 5, 7, 4)))
    assert described.workload.rhs == Operand.plain((4, 5, 7))
    x, y = normal(4, 6, 5), normal(5, 7, 4)
    result, _ = run(mod, TARGETS[0], x, y)
    assert_close(result, x.astype("f8") @ y.transpose(2, 0, 1))


def test_a_record_sets_the_implementation_and_packs_the_weight_its_way():
    record = ConfigEntity.from_entity(
        [["tile_y", "sp", [3, 1, 4]], ["tile_x", "sp", [4, 1, 6]], ["tile_k", "sp", [5, 4]]],
        source="topi:tuned.log:3",
        is_fallback=False,
        cost=1e-5,
    )
    weight = normal(20, 24)

    def query(_, workload):
        return record if workload[0] == "dense_pack.x86" else None

    mod = module(lambda emit, x: relax.op.matmul(x, relax.const(weight)), var("x", 12, 20))
    mod, _ = lower(mod, query=query)
    x = normal(12, 20)
    (function,) = kernels(mod).values()
    assert rules.schedule(function, TARGETS[0]).source == "topi:tuned.log:3"
    result, used = run(mod, TARGETS[0], x)
    assert used == ["dense_pack.x86"]
    assert_close(result, x.astype("f8") @ weight)


@pytest.mark.parametrize(
    "x, y",
    [
        (var("x", 4, 6, dtype="int64"), var("y", 6, 5, dtype="int64")),
        (var("x", 6), var("y", 6, 5)),
        (var("x", 4, 6), var("y", 6)),
        (var("x", tvm.tirx.Var("n", "int64"), 6), var("y", 6, 5)),
    ],
    ids=["wide integers", "vector times matrix", "matrix times vector", "dynamic shape"],
)
def test_other_products_are_left_to_the_generic_rules(x, y):
    mod = module(lambda emit, x, y: relax.op.matmul(x, y), x, y)
    lowering = _LowerMatmul(mod, TARGETS[0], None)
    function = lowering.visit_expr(mod["main"])
    assert "relax.op.matmul" in function.script() or "R.matmul" in function.script()
