"""The graph tuner's solvers against brute force, and its records on a network."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax, te

from compiler import autotvm
from compiler.autotvm.graph_tuner.solver import eliminate, reduce, total_cost
from compiler.autotvm.graph_tuner.transforms import Transform
from compiler.errors import RecordError
from compiler.records.autotvm.record import (
    LoggedTask,
    MeasureInput,
    MeasureResult,
)
from schedules.config import ConfigEntity


@st.composite
def problems(draw, dense=True):
    count = draw(st.integers(1, 6))
    sizes = draw(st.lists(st.integers(1, 3), min_size=count, max_size=count))
    seed = draw(st.integers(0, 1 << 20))
    rng = np.random.default_rng(seed)
    nodes = {n: rng.integers(0, 20, size).astype(float) for n, size in enumerate(sizes)}
    pairs = {}
    for one, other in itertools.combinations(range(count), 2):
        if other == one + 1 or (dense and rng.random() < 0.6):
            pairs[one, other] = rng.integers(0, 20, (sizes[one], sizes[other])).astype(float)
    return nodes, pairs


def least(nodes, pairs):
    choices = itertools.product(*(range(len(costs)) for costs in nodes.values()))
    return min(total_cost(nodes, pairs, dict(zip(nodes, chosen))) for chosen in choices)


@settings(deadline=None)
@given(problems())
def test_elimination_finds_the_least_cost_on_any_graph(problem):
    chosen = eliminate(*problem, max_num_states=10**6)
    assert total_cost(*problem, chosen) == least(*problem)


@settings(deadline=None)
@given(problems(dense=False))
def test_reduction_finds_the_least_cost_on_a_chain(problem):
    assert total_cost(*problem, reduce(*problem)) == least(*problem)


@settings(deadline=None)
@given(problems())
def test_reduction_makes_a_choice_for_every_node_of_any_graph(problem):
    nodes, pairs = problem
    chosen = reduce(nodes, pairs)
    assert set(chosen) == set(nodes)
    worst = sum(c.max() for c in nodes.values()) + sum(c.max() for c in pairs.values())
    assert least(nodes, pairs) <= total_cost(nodes, pairs, chosen) <= worst


def test_elimination_gives_up_where_its_tables_get_too_large():
    nodes = {n: np.zeros(4) for n in range(4)}
    pairs = {pair: np.zeros((4, 4)) for pair in itertools.combinations(range(4), 2)}
    assert eliminate(nodes, pairs, max_num_states=16) is None


SHAPES = [((1, 16, 8, 8), (32, 16, 3, 3)), ((1, 32, 8, 8), (32, 32, 3, 3))]


@pytest.fixture(scope="module")
def network():
    """conv -> relu -> conv, added to the first one's result."""
    rng = np.random.default_rng(0)
    builder = relax.BlockBuilder()
    data = relax.Var("data", relax.TensorType(SHAPES[0][0], "float32"))
    with builder.function("main", [data]):
        with builder.dataflow():
            x = data
            results = []
            for _, weight in SHAPES:
                values = relax.const(rng.standard_normal(weight).astype("float32"))
                conv = builder.emit(relax.op.nn.conv2d(x, values, padding=1))
                x = builder.emit(relax.op.nn.relu(conv))
                results.append(x)
            out = builder.emit_output(relax.op.add(*results))
        builder.emit_func_output(out)
    return builder.get()


def record(shapes, ic, oc, cost):
    data, weight = shapes
    args = (
        ("TENSOR", data, "float32"), ("TENSOR", weight, "float32"), (1, 1), (1, 1, 1, 1), (1, 1),
        "NCHW", "NCHW", "float32",
    )  # fmt: skip
    entity = [
        ["tile_ic", "sp", [-1, ic]], ["tile_oc", "sp", [-1, oc]], ["tile_ow", "sp", [-1, 8]],
        ["unroll_kw", "ot", False],
    ]  # fmt: skip
    config = ConfigEntity.from_entity(entity, is_fallback=False)
    inp = MeasureInput("llvm", LoggedTask("conv2d_NCHWc.x86", args), config)
    return inp, MeasureResult((cost,), 0, 0.0, 0.0)


RECORDS = [
    record(SHAPES[0], 16, 32, 1.0e-4), record(SHAPES[0], 16, 16, 1.1e-4),
    record(SHAPES[1], 16, 16, 2.0e-4), record(SHAPES[1], 32, 32, 2.5e-4),
]  # fmt: skip


def conversions(seconds):
    """Records of the task layout_transform: one conversion takes so long."""
    for before, after in itertools.permutations([1, 16, 32], 2):
        for shape in (SHAPES[0][0], SHAPES[1][0]):
            task = LoggedTask("layout_transform", Transform(shape, "float32", before, after).args())
            yield MeasureInput("llvm", task, ConfigEntity()), MeasureResult((seconds,), 0, 0, 0)


def tuned(kind, network, seconds):
    tuner = getattr(autotvm.graph_tuner, kind)(
        network, {"data": SHAPES[0][0]}, RECORDS, [relax_op("nn.conv2d")], "llvm"
    )
    tuner.benchmark_layout_transform(layout_records=conversions(seconds), infer_layout=True)
    tuner.run()
    return tuner


def relax_op(name):
    import tvm

    return tvm.ir.Op.get("relax." + name)


def blocks(tuner):
    return [
        (inp.config.size("tile_ic")[-1], inp.config.size("tile_oc")[-1])
        for inp, _ in tuner.get_optimal_records()
    ]


@pytest.mark.parametrize("kind", ["DPTuner", "PBQPTuner"])
def test_cheap_conversions_leave_each_convolution_its_fastest_record(network, kind):
    assert blocks(tuned(kind, network, 1e-9)) == [(16, 32), (16, 16)]


@pytest.mark.parametrize("kind", ["DPTuner", "PBQPTuner"])
def test_dear_conversions_make_layouts_agree(network, kind):
    assert blocks(tuned(kind, network, 1e-3)) == [(16, 16), (16, 16)]


def test_the_log_has_a_line_for_each_convolution_in_order(network, tmp_path):
    log = tmp_path / "net.graph.log"
    tuned("DPTuner", network, 1e-3).write_opt_sch2record_file(log)
    records = list(autotvm.load_from_file(log))
    assert [inp.task.args[0][1] for inp, _ in records] == [shapes[0] for shapes in SHAPES]
    assert all(result.error_no == 0 for _, result in records)


def test_conversions_are_measured_on_this_machine(network):
    tuner = autotvm.graph_tuner.DPTuner(network, {}, RECORDS, ["nn.conv2d"], "llvm")
    runner = autotvm.LocalRunner(timeout=60, number=2, repeat=1, cooldown_interval=0)
    tuner.benchmark_layout_transform(timeout=60, infer_layout=True, runner=runner)
    runner.close()
    assert tuner.layout_transform_perf_records
    assert all(0 < seconds < 1 for seconds in tuner.costs.seconds.values())
    encoded = [autotvm.encode(*each) for each in tuner.layout_transform_perf_records]
    assert all('"layout_transform"' in line for line in encoded)


def test_a_convolution_without_record_is_named(network):
    with pytest.raises(RecordError, match="32, 32, 3, 3"):
        autotvm.graph_tuner.DPTuner(network, {}, RECORDS[:2], ["nn.conv2d"], "llvm")


def test_a_wrong_input_shape_and_a_missing_run_are_errors(network):
    with pytest.raises(RecordError, match="data"):
        autotvm.graph_tuner.DPTuner(network, {"data": (1, 3)}, RECORDS, ["nn.conv2d"], "llvm")
    with pytest.raises(RecordError, match="run"):
        autotvm.graph_tuner.DPTuner(
            network, {}, RECORDS, ["nn.conv2d"], "llvm"
        ).get_optimal_records()


def test_a_conversion_is_a_task_with_one_config_that_can_be_measured():
    data = te.placeholder((1, 3, 8, 8, 8), name="data")
    task = autotvm.task.create("layout_transform", [data, "NCHW8c", "NCHW4c"], "llvm")
    assert task.workload == autotvm.task.args_to_workload(
        [data, "NCHW8c", "NCHW4c"], "layout_transform"
    )
    assert len(task.config_space) == 1 and task.flop == 24 * 8 * 8
    func, tensors = task.instantiate(task.config_space.get(0))
    given = np.random.rand(1, 3, 8, 8, 8).astype("float32")
    out = tvm.runtime.empty((1, 6, 8, 8, 4), "float32")
    tvm.compile(func.with_attr("global_symbol", "main"), "llvm")(tvm.runtime.tensor(given), out)
    plain = given.transpose(0, 1, 4, 2, 3).reshape(1, 6, 4, 8, 8)
    np.testing.assert_array_equal(out.numpy(), plain.transpose(0, 1, 3, 4, 2))
    assert len(tensors) == 2
    with pytest.raises(RecordError, match="the graph tuner converts NCHW"):
        autotvm.task.create("layout_transform", [data, "NHWC", "NCHW4c"], "llvm")
