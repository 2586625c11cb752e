"""Which spellings of attention become one kernel, and that the numbers stay the same."""

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from compiler import auto_scheduler, relay
from compiler.auto_scheduler.search.templates import TemplateSearch
from compiler.lowering.selection.context import LoweringContext
from compiler.lowering.selection.layout_cache import LayoutMap
from compiler.lowering.selection.ops.attention import find_attention, lower_attention
from compiler.records.auto_scheduler.record import Record, save_records
from compiler.records.auto_scheduler.template import Template
from compiler.runtime import graph_executor
from schedules.config import ConfigEntity

B, S, H, D = 2, 33, 3, 7
SCALE = 0.25
TARGET = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2})
RNG = np.random.default_rng(0)


def number(value):
    return relax.const(value, "float32")


def function(build, shapes):
    """A module whose main is `build(emit, *inputs)`."""
    builder = relax.BlockBuilder()
    params = [
        relax.Var(f"x{i}", relax.TensorType(shape, "float32")) for i, shape in enumerate(shapes)
    ]
    with builder.function("main", params):
        with builder.dataflow():
            out = build(builder.emit, *params)
            if isinstance(out, tuple):
                out = relax.Tuple(out)
            out = builder.emit_output(out)
        builder.emit_func_output(out)
    return builder.get()


def transformer(scores=None, axis=-1, join=True, extra=False, operands=None, weights_of=None):
    """Attention on (B, S, H * D) tensors, `scores` between first product and softmax, `operands`
    in front of the first product and `weights_of` behind the softmax."""

    def build(emit, q, k, v, *mask):
        heads = [emit(op.reshape(x, (B, S, H, D))) for x in (q, k, v)]
        q = emit(op.permute_dims(heads[0], [0, 2, 1, 3]))
        k = emit(op.permute_dims(heads[1], [0, 2, 3, 1]))
        v = emit(op.permute_dims(heads[2], [0, 2, 1, 3]))
        if operands is not None:
            q, k = operands(emit, q, k)
        logits = emit(op.matmul(q, k))
        if scores is not None:
            logits = scores(emit, logits, *mask)
        weights = emit(op.nn.softmax(logits, axis))
        if weights_of is not None:
            weights = weights_of(emit, weights)
        out = emit(op.matmul(weights, v))
        if join:
            out = emit(op.reshape(emit(op.permute_dims(out, [0, 2, 1, 3])), (B, S, H * D)))
        return (out, weights) if extra else out

    return build


def multiplied(emit, logits, mask):
    return emit(op.add(emit(op.multiply(logits, number(SCALE))), mask))


def divided(emit, logits, mask):
    return emit(op.add(mask, emit(op.divide(logits, number(1 / SCALE)))))


def unscaled(emit, logits, mask):
    return emit(op.add(logits, mask))


def chosen(emit, logits, mask):
    hidden = emit(op.less(mask, number(-0.5)))
    scaled = emit(op.multiply(logits, number(SCALE)))
    return emit(op.where(hidden, number(-1e9), scaled))


def chosen_then_added(emit, logits, causal, mask):
    allowed = emit(op.less(causal, number(1.0)))
    scaled = emit(op.divide(logits, number(1 / SCALE)))
    return emit(op.add(emit(op.where(allowed, scaled, number(-3.4e38))), mask))


def both_scaled(emit, q, k):
    return emit(op.multiply(q, number(SCALE))), emit(op.multiply(k, number(2 * SCALE)))


def without_nan(emit, weights):
    return emit(op.where(emit(op.isnan(weights)), number(0.0), weights))


def scale_only(emit, logits):
    return emit(op.multiply(number(SCALE), logits))


def stacked(order, axis, split=(B, S, 3, H, D)):
    """Attention on one tensor (B, S, 3 * H * D) of queries, keys and values."""

    def build(emit, qkv):
        stack = emit(op.permute_dims(emit(op.reshape(qkv, split)), order))
        q, k, v = (
            emit(op.take(stack, relax.const(i, "int64"), axis=axis, mode="clip")) for i in range(3)
        )
        logits = emit(op.matmul(q, emit(op.permute_dims(k, [0, 1, 3, 2]))))
        out = emit(op.matmul(emit(op.nn.softmax(logits)), v))
        return emit(op.reshape(emit(op.permute_dims(out, [0, 2, 1, 3])), (B, S, H * D)))

    return build


QKV = [(B, S, H * D)] * 3
SPELLINGS = {
    "plain": (transformer(), QKV),
    "scaled": (transformer(scale_only), QKV),
    "scaled, masked by key": (transformer(multiplied), [*QKV, (B, 1, 1, S)]),
    "divided, causal": (transformer(divided), [*QKV, (S, S)]),
    "masked, unscaled": (transformer(unscaled), [*QKV, (B, H, S, S)]),
    "heads apart": (transformer(join=False), QKV),
    "stacked": (stacked([2, 0, 3, 1, 4], 0), [(B, S, 3 * H * D)]),
    "stacked in the middle": (stacked([0, 3, 2, 1, 4], 2), [(B, S, 3 * H * D)]),
    "stacked in front of the last": (stacked([0, 3, 1, 2, 4], -2), [(B, S, 3 * H * D)]),
    "stacked at the end": (stacked([0, 3, 1, 4, 2], 4), [(B, S, 3 * H * D)]),
    "queries and keys scaled": (transformer(operands=both_scaled), QKV),
    "zeros for NaN": (transformer(multiplied, weights_of=without_nan), [*QKV, (B, 1, S, S)]),
    "some hidden": (transformer(chosen), [*QKV, (S, S)]),
    "some hidden, then masked": (
        transformer(chosen_then_added),
        [*QKV, (1, 1, S, S), (B, 1, 1, S)],
    ),
    "axis counted from the front": (transformer(axis=3), QKV),
}


def run(mod, shapes, disabled=(), target="llvm"):
    with tvm.transform.PassContext(opt_level=3, disabled_pass=list(disabled)):
        library = relay.build(mod, target)
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    rng = np.random.default_rng(1)
    for i, shape in enumerate(shapes):
        executor.set_input(f"x{i}", rng.standard_normal(shape).astype("float32"))
    executor.run()
    outputs = [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]
    return outputs, [kernel.implementation for kernel in library.report.kernels]


@pytest.mark.parametrize("name", SPELLINGS)
def test_every_spelling_becomes_one_kernel_with_the_same_result(name):
    build, shapes = SPELLINGS[name]
    mod = function(build, shapes)
    (fused,), kernels = run(mod, shapes)
    (separate,), others = run(mod, shapes, ["FuseAttention"], "llvm -opt-level=0")
    assert [each for each in kernels if each != "Injective"] == ["attention.x86"]
    assert "attention.x86" not in others and len(others) >= 3
    assert np.abs(fused - separate).max() < 1e-5 * np.abs(separate).max()


def test_entries_of_the_last_axis_are_copied_first():
    shapes = [(B, S, 3 * H * D)]
    mod = function(stacked([0, 2, 1, 3, 4], 4, (B, S, H, D, 3)), shapes)
    assert all(found.q.ty.ndim == 4 for found in find_attention(mod["main"]).values())
    (fused,), kernels = run(mod, shapes)
    (separate,), _ = run(mod, shapes, ["FuseAttention"])
    assert "attention.x86" in kernels and len(kernels) > 1
    assert np.abs(fused - separate).max() < 1e-5 * np.abs(separate).max()


def test_probabilities_that_are_an_output_are_not_fused_away():
    mod = function(transformer(extra=True), QKV)
    assert find_attention(mod["main"]) == {}
    (out, weights), kernels = run(mod, QKV)
    assert "attention.x86" not in kernels
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)
    assert out.shape == (B, S, H * D)


def test_what_replaces_other_values_than_nan_is_no_attention():
    def positive(emit, weights):
        return emit(op.where(emit(op.isnan(weights)), number(0.5), weights))

    assert find_attention(function(transformer(weights_of=positive), QKV)["main"]) == {}


def test_softmax_over_another_axis_is_no_attention():
    mod = function(transformer(axis=2), QKV)
    assert find_attention(mod["main"]) == {}


def test_a_mask_that_is_larger_than_the_scores_is_no_attention():
    def build(emit, q, k, v, mask):
        logits = emit(op.matmul(q, k))
        weights = emit(op.nn.softmax(emit(op.add(logits, mask))))
        return emit(op.matmul(weights, v))

    mod = function(build, [(1, S, D), (1, D, S), (1, S, D), (4, S, S)])
    assert find_attention(mod["main"]) == {}


BEFORE = np.tri(S, dtype=bool)  # keys up to the query's own
LOWEST = np.finfo("float32").min


def added(*masks):
    def scores(emit, logits):
        for mask in masks:
            logits = emit(op.add(logits, relax.const(mask.astype("float32"))))
        return logits

    return scores


def chosen(condition, fill, hides=False):
    def scores(emit, logits):
        condition_and_values = relax.const(condition), logits, number(fill)
        if hides:
            condition_and_values = relax.const(condition), number(fill), logits
        return emit(op.where(*condition_and_values))

    return scores


def after(first, second):
    return lambda emit, logits: second(emit, first(emit, logits))


@pytest.mark.parametrize(
    ("scores", "diagonal"),
    [
        (added(np.where(BEFORE, 0, -np.inf)), 0),
        (added(np.where(BEFORE, 0, LOWEST)), 0),
        (added(np.where(np.tri(S, k=4, dtype=bool), 0, LOWEST)[None, None]), 4),
        (added(np.where(BEFORE & ~np.tri(S, k=-9, dtype=bool), 0, -np.inf)), 0),
        (chosen(BEFORE, -np.inf), 0),
        (chosen(~BEFORE, -np.inf, hides=True), 0),
        (added(RNG.random((S, S)), np.where(BEFORE, 0, -np.inf)), 0),
        (added(np.where(np.tri(S, k=-3, dtype=bool), 0, -np.inf)), 0),
        # Keys of another batch element, weights that are only small, rows that see no key.
        (added(np.where(np.stack([BEFORE, ~BEFORE])[:, None], 0, -np.inf)), None),
        (added(np.where(BEFORE, 0, -1e4)), None),
        (added(np.where(np.tri(S, k=-3, dtype=bool), 0, LOWEST)), None),
        (added(RNG.random((S, S)), np.where(BEFORE, 0, LOWEST)), None),
        (added(np.where(np.arange(S) < 9, 0, -np.inf)), None),
        (added(np.where(BEFORE, np.nan, -np.inf) * np.eye(S) ** 0), 0),
        (chosen(BEFORE, 0.0), None),
        (after(added(np.where(BEFORE, 0, -np.inf)), chosen(BEFORE, -np.inf)), 0),
        (after(added(np.where(BEFORE, 0, -np.inf)), chosen(RNG.random((S, S)) < 0.5, -9.0)), None),
    ],
)
def test_constants_that_hide_keys_after_a_diagonal_are_causal(scores, diagonal):
    (attention,) = find_attention(function(transformer(scores), QKV)["main"]).values()
    assert attention.workload.diagonal == diagonal


def test_a_mask_that_is_an_input_is_not_causal():
    mod = function(transformer(lambda emit, x, mask: emit(op.add(x, mask))), [*QKV, (S, S)])
    (attention,) = find_attention(mod["main"]).values()
    assert attention.workload.diagonal is None


def test_a_tuning_record_for_one_of_its_products_keeps_them_apart():
    (attention,) = find_attention(function(transformer(), QKV)["main"]).values()
    builder = relax.BlockBuilder()
    layouts = LayoutMap(builder, lambda expr: expr)

    def recorded(_, workload):
        tuned = workload[0] == "batch_matmul.x86" and workload[1][1][2] == S
        return ConfigEntity(is_fallback=False, cost=1e-3) if tuned else None

    at = LoweringContext(builder, layouts, TARGET, None)
    assert lower_attention(at.asking(recorded), attention) is None
    assert lower_attention(at.asking(lambda *_: None), attention) is not None


@pytest.mark.parametrize("which", [0, 1])
def test_an_auto_scheduler_record_for_one_of_its_products_keeps_them_apart(which, tmp_path):
    mod = function(transformer(), QKV)
    tasks, _ = auto_scheduler.extract_tasks(mod, {}, TARGET)
    product = [task for task in tasks if "matmul" in task.desc][which]
    search = TemplateSearch(product, [], "random", seed=1)
    tuner = next(t for t in search.tuners if t.task.name == "batch_matmul.x86")
    template = Template(tuner.task.name, tuner.task.args, tuner.space.get(0).to_entity())
    log = tmp_path / "products.json"
    record = Record(product.workload_key, {"kind": "llvm"}, [[], []], (1e-6,), 0, template=template)
    save_records(log, [record])
    (fused,), _ = run(mod, QKV)
    with auto_scheduler.ApplyHistoryBest(log):
        library = relay.build(mod, TARGET)
        (separate,), kernels = run(mod, QKV)
    assert "attention.x86" not in kernels
    sources = {k.source for k in library.report.kernels if k.implementation == template.task}
    assert "auto_scheduler:products.json:1" in sources
    assert np.abs(fused - separate).max() < 1e-5 * np.abs(fused).max()


def test_it_is_off_below_opt_level_3():
    mod = function(transformer(), QKV)
    with tvm.transform.PassContext(opt_level=2):
        library = relay.build(mod, "llvm")
    assert "attention.x86" not in [kernel.implementation for kernel in library.report.kernels]
