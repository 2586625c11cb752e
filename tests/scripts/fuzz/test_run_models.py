"""The fuzzer of models: what it draws, whom it finds guilty, and a short run without findings."""

from __future__ import annotations

import ast
import functools
import os
import time

import numpy as np
import onnx
import pytest
from onnx import helper

from scripts.fuzz import attempt, draft, generator, judge, minimize, operators, pool, run_models
from scripts.fuzz.evaluate import EvaluationError, NodeRunner, by_reference, make_model

NODE = helper.make_node
model_of = functools.partial(make_model, opset=17)
X = np.array([[1.0, -2.0, 3.0]], "float32")


# ---------------------------------------------------------------- drawing


def test_a_case_is_the_same_for_the_same_seed_and_number():
    first, second, other = (generator.draw(seed, 3) for seed in (7, 7, 8))
    assert first.model == second.model != other.model
    assert first.feeds.keys() == second.feeds.keys()
    for kind, feed in first.feeds.items():
        for name, array in feed.items():
            np.testing.assert_array_equal(array, second.feeds[kind][name])


@pytest.mark.parametrize("name", sorted(operators.MAKERS))
def test_every_maker_draws_its_operator(name):
    made = set()
    opsets = [opset for opset in generator.OPSETS if name in operators.available(opset)]
    for number in range(40):
        rng = np.random.default_rng([1, number])
        opset = int(rng.choice(opsets))
        drawn = draft.Draft(rng, opset)
        try:
            operators.MAKERS[name](drawn, name)
        except EvaluationError:
            continue
        made |= {node.op_type for node in drawn.nodes}
        if name.split(".")[-1] in made:
            return
    pytest.fail(f"{name} was not drawn, but {made}")


def test_every_operator_of_the_importer_is_drawn_or_left_out_with_a_reason():
    from tvm.relax.frontend.onnx.onnx_frontend import _get_convert_map

    from compiler.relay.frontend.onnx.ops import CONVERTERS

    known = {f"{domain}.{name}" if domain else name for domain, name in CONVERTERS}
    known |= set(_get_convert_map()) - {name for domain, name in CONVERTERS if domain}
    assert known <= operators.MAKERS.keys() | operators.NOT_DRAWN.keys()


# ---------------------------------------------------------------- judging


def verdict(nodes, feeds, output, got):
    model = model_of(nodes, feeds, [output])
    expected = attempt._expect(model, feeds, "plain", (), lambda step: None)
    return judge.judge(model, feeds, expected.values, [got]).kind


@pytest.mark.parametrize(
    ("op", "feed", "got", "kind"),
    [
        ("Neg", X, -X, "agree"),
        ("Neg", X, np.nextafter(-X, X), "wrong"),
        ("Neg", X, -X.astype("float64"), "wrong"),
        ("Neg", X, -X[0], "wrong"),
        ("Sqrt", np.abs(X), np.nextafter(np.sqrt(np.abs(X)), X), "agree"),
        ("Exp", X, np.exp(X) * np.float32(1 + 4e-7), "agree"),
        ("Exp", X, np.exp(X) * np.float32(1 + 1e-4), "wrong"),
        ("Relu", np.array([np.nan], "float32"), np.zeros(1, "float32"), "wrong"),
    ],
)
def test_results_may_be_apart_as_far_as_the_operator_rounds(op, feed, got, kind, monkeypatch):
    monkeypatch.setattr(judge, "QUICK", dict.fromkeys(judge.QUICK, 0.0))
    assert verdict([NODE(op, ["x"], ["y"])], {"x": feed}, "y", got) == kind


def test_cancellation_widens_the_tolerance_and_a_wrong_term_does_not_hide_in_it():
    a = np.array([[1e4, 1.0, -1e4]], "float32")
    b = np.array([[1.0], [1e-3], [1.0]], "float32")
    nodes, feeds = [NODE("MatMul", ["a", "b"], ["y"])], {"a": a, "b": b}
    assert verdict(nodes, feeds, "y", np.array([[0.0015]], "float32")) == "agree"
    assert verdict(nodes, feeds, "y", np.array([[0.5]], "float32")) == "wrong"


def test_what_onnx_does_not_define_is_nobodys_fault():
    nodes = [NODE("Cast", ["x"], ["y"], to=onnx.TensorProto.INT32)]
    feeds = {"x": np.array([1e30], "float32")}
    assert verdict(nodes, feeds, "y", np.array([7], "int32")) == "undefined"


def test_known_faults_of_evaluators_are_told_from_batons():
    nodes = [NODE("OneHot", ["i", "depth", "values"], ["y"])]
    feeds = {
        "i": np.array([1], "int32"),  # onnxruntime has no such OneHot, the reference evaluator does
        "depth": np.array(2, "int64"),
        "values": np.array([0, np.inf], "float32"),
    }
    assert verdict(nodes, feeds, "y", np.array([[0, np.inf]], "float32")) == "onnxruntime"


def test_onnxruntime_runs_nodes_that_it_takes_with_known_extents_alone():
    x, sizes = np.array([[[1, np.nan, 2]]], "float32"), np.array([1, 1, 6])
    node = NODE("Resize", ["x", "", "", "n"], ["y"], mode="nearest", nearest_mode="floor",
                coordinate_transformation_mode="align_corners")  # fmt: skip
    (result,) = NodeRunner(16).run(node, {"x": x, "n": sizes}).values()
    assert np.isnan(result).sum() == 2  # the reference evaluator has a NaN more


def test_nan_of_doubles_is_as_onnxruntime_has_it_in_float32():
    x = np.array([[[1, np.nan, 2]]], "float64")
    nodes = [NODE("AveragePool", ["x"], ["y"], kernel_shape=[2])]
    assert verdict(nodes, {"x": x}, "y", np.full((1, 1, 2), np.nan)) == "onnxruntime"
    assert verdict(nodes, {"x": x}, "y", np.array([[[np.nan, 3]]])) == "wrong"
    nodes.append(NODE("IsNaN", ["y"], ["z"]))
    assert verdict(nodes, {"x": x}, "z", np.array([[[True, True]]])) == "onnxruntime"
    assert verdict(nodes, {"x": x}, "z", np.array([[[True, False]]])) == "wrong"


@pytest.mark.parametrize(
    ("node", "feeds", "kind"),
    [
        (
            NODE("Shrink", ["x"], ["y"], bias=-1.0),
            {"x": np.array([2**64 - 1], "uint64")},
            "undefined",
        ),
        (NODE("Shrink", ["x"], ["y"], bias=-1.0), {"x": np.array([5], "uint64")}, "wrong"),
        (
            NODE("ScatterElements", ["x", "i", "u"], ["y"], reduction="max"),
            {
                "x": np.zeros(1, "float32"),
                "i": np.array([0, 0]),
                "u": np.array([np.nan, -1], "float32"),
            },
            "onnxruntime",
        ),
        (
            NODE("RNN", ["x", "w", "r"], ["y"], hidden_size=1, activations=["Softplus"]),
            {"x": np.full((1, 1, 1), 99, "float32")}
            | {name: np.ones((1, 1, 1), "float32") for name in "wr"},
            "onnxruntime",
        ),
        (
            NODE("LSTM", ["x", "w", "r", "", "", "", "c"], ["y"], hidden_size=1),
            {"x": np.full((1, 1, 1), -99, "float32"), "c": np.full((1, 1, 1), np.inf, "float32")}
            | {name: np.ones((1, 4, 1), "float32") for name in "wr"},
            "onnxruntime",
        ),
        (
            NODE("LSTM", ["x", "w", "r", "", "", "", "c"], ["y"], hidden_size=1),
            {name: np.ones((1, 1, 1), "float32") for name in "xc"}
            | {name: np.ones((1, 4, 1), "float32") for name in "wr"},
            "wrong",
        ),
        (
            NODE("ConvTranspose", ["x", "w"], ["y"], auto_pad="SAME_UPPER", strides=[2, 2]),
            {name: np.ones((1, 1, 1, 1)) for name in "xw"},
            "onnxruntime",
        ),
        (
            NODE("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], auto_pad="SAME_LOWER"),
            {"x": np.zeros((1, 1, 2, 2))},
            "onnxruntime",
        ),
        (
            NODE("ReduceProd", ["x"], ["y"]),
            {"x": np.array([1e-30, 1e-30, np.inf], "float32")},
            "undefined",
        ),
        (
            NODE("ReduceProd", ["x"], ["y"]),
            {"x": np.array([1e-35, 0.5, np.inf], "float32")},
            "wrong",
        ),
        (NODE("ReduceLogSum", ["x"], ["y"]), {"x": np.array([0], "int32")}, "undefined"),
        (NODE("ReduceLogSum", ["x"], ["y"]), {"x": np.array([3], "int32")}, "wrong"),
        (
            NODE("ThresholdedRelu", ["x"], ["y"], alpha=0.191),
            {"x": np.array([0.191], "float16")},
            "onnxruntime",
        ),
        (
            NODE("ThresholdedRelu", ["x"], ["y"], alpha=0.191),
            {"x": np.array([0.25], "float16")},
            "wrong",
        ),
        (
            NODE("MaxPool", ["x"], ["", "y"], kernel_shape=[2, 2], storage_order=1),
            {"x": np.array([[[[1, 2], [2, 1]]]], "float32")},
            "undefined",
        ),
        (
            NODE("MaxPool", ["x"], ["", "y"], kernel_shape=[2, 2], storage_order=1),
            {"x": np.array([[[[1, 2], [3, 4]]]], "float32")},
            "wrong",
        ),
        (NODE("LRN", ["x"], ["y"], size=1), {"x": np.ones((1, 2, 1, 1))}, "onnxruntime"),
        (NODE("LRN", ["x"], ["y"], size=1), {"x": np.ones((2, 2, 1, 1))}, "wrong"),
        (
            NODE("Unique", ["x"], ["y"], axis=1, sorted=0),
            {"x": np.zeros((2, 2), "uint8")},
            "onnxruntime",
        ),
        (NODE("Unique", ["x"], ["y"], axis=1), {"x": np.zeros((2, 2), "uint8")}, "wrong"),
        (
            NODE("GlobalMaxPool", ["x"], ["y"]),
            {"x": np.array([[[[np.nan, 1]]]], "float32")},
            "onnxruntime",
        ),
    ],
)
def test_rules_say_what_is_not_compared(node, feeds, kind, opset=18):
    model = model_of([node], feeds, ["y"], opset=opset)
    expected = attempt._expect(model, feeds, "plain", (), lambda step: None).values
    got = np.full_like(expected[0], 77)
    assert judge.judge(model, feeds, expected, [got]).kind == kind


def test_an_output_is_judged_by_what_it_needs_alone():
    feeds = {"x": np.array([2.0], "float32"), "a": np.zeros(6, "float32")}
    bounds = {"s": 2, "e": -10, "d": -2}
    feeds |= {name: np.array(value, "float32") for name, value in bounds.items()}
    nodes = [NODE("Sqrt", ["x"], ["y"]), NODE("Range", ["s", "e", "d"], ["r"])]
    nodes.append(NODE("Add", ["r", "a"], ["z"]))  # rounding errors of a range add an element
    assert verdict(nodes, feeds, "y", np.array([1.5], "float32")) == "wrong"


def test_pools_with_nan_are_not_judged_by_the_reference_evaluator():
    feeds = {"x": np.array([[[1, np.nan, np.inf]]], "float32")}
    nodes = [NODE("AveragePool", ["x"], ["p"], kernel_shape=[2]), NODE("ReduceMax", ["p"], ["y"])]
    nan = np.full((1, 1, 1), np.nan, "float32")
    assert verdict(nodes, feeds, "y", nan) in ("agree", "onnxruntime")
    assert verdict(nodes, feeds, "y", np.ones_like(nan)) == "wrong"


def test_the_smallest_deviation_of_halves_is_0_to_evaluators():
    node, x = NODE("MeanVarianceNormalization", ["x"], ["y"]), np.zeros((1, 1, 1, 1), "float16")
    test_rules_say_what_is_not_compared(node, {"x": x}, "onnxruntime", opset=15)


@pytest.mark.parametrize(("point", "kind"), [(1.001, "onnxruntime"), (2.0, "wrong")])
def test_distances_of_close_points_cancel_in_onnxruntime(point, kind):
    feeds = {"a": np.ones((1, 1), "float32"), "b": np.full((1, 1), point, "float32")}
    node = NODE("CDist", ["a", "b"], ["y"], domain="com.microsoft", metric="euclidean")
    assert verdict([node], feeds, "y", np.full((1, 1), 77, "float32")) == kind


@pytest.mark.parametrize(("last", "kind"), [(-1, "undefined"), (1, "wrong")])
def test_integers_and_floats_cancel_differently(last, kind):
    feeds = {"a": np.array([[99, 99, 1]], "uint8"), "b": np.array([[99], [99 * last], [1]], "int8")}
    feeds |= {name: np.float32(0.1) for name in ("sa", "sb")}
    feeds |= {"za": np.uint8(0), "zb": np.int8(0)}
    feeds = {name: np.asarray(value) for name, value in feeds.items()}
    node = NODE("QGemm", ["a", "sa", "za", "b", "sb", "zb"], ["y"], domain="com.microsoft")
    assert verdict([node], feeds, "y", np.full((1, 1), 7e7, "float32")) == kind


@pytest.mark.parametrize(("extent", "kind"), [(0, "undefined"), (1, "accepted")])
def test_indices_that_only_an_empty_tensor_depends_on_are_not_read(extent, kind):
    from compiler.relay.frontend import from_onnx

    feeds = {"x": np.zeros((1, 1), "float32"), "i": np.full((1, 2), 9), "u": np.ones(1, "float32")}
    nodes = [NODE("ScatterND", ["x", "i", "u"], ["a"]), NODE("Expand", ["a", "n"], ["y"])]
    model = model_of(nodes, feeds, ["y"])
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1, extent]), "n"))
    expected = attempt._expect(model, feeds, "outside", (), lambda step: None)
    without = model_of([NODE("Identity", ["x"], ["y"])], {"x": feeds["x"]}, ["y"])
    config = attempt.Config(0, "llvm")
    library = attempt.build(*from_onnx(without), config)
    event = attempt._compare(library, model, {"x": feeds["x"]}, "outside", expected, config)
    assert event.kind == kind


def test_the_reference_evaluators_results_have_the_dtypes_that_onnx_says():
    x = np.array([3, 4], "uint32")  # numpy's sum of them has 64 bits
    model = model_of([NODE("ReduceSumSquare", ["x"], ["y"])], {"x": x}, ["y"], opset=18)
    (result,) = by_reference(model, {"x": x})
    assert result.dtype == np.uint32 and result.tolist() == [25]


@pytest.mark.parametrize(
    ("mode", "dtype", "kind"),
    [("nearest", "float32", "wrong"), ("nearest", "float64", "onnxruntime"),
     ("linear", "float32", "undefined")],
)  # fmt: skip
def test_neighbors_with_a_weight_of_zero_count_in_some_evaluators(mode, dtype, kind):
    x = np.array([[[1.0, np.inf, 2.0]]], dtype)
    scales = onnx.numpy_helper.from_array(np.array([1, 1, 2], "float32"), "s")
    node = NODE("Resize", ["x", "", "s"], ["y"], mode=mode, nearest_mode="floor",
                coordinate_transformation_mode="asymmetric")  # fmt: skip
    model = model_of([node], {"x": x}, ["y"])
    model.graph.initializer.append(scales)
    expected = attempt._expect(model, {"x": x}, "plain", (), lambda step: None).values
    got = [np.full_like(expected[0], 7)]
    assert judge.judge(model, {"x": x}, expected, got).kind == kind


# ---------------------------------------------------------------- workers


@pytest.mark.parametrize(
    ("op", "kind"), [("Abs", "agree"), ("Ceil", "crash"), ("Floor", "hang"), ("Neg", "agree")]
)
def test_a_crash_and_a_hang_are_events_and_the_next_case_is_tried(op, kind, monkeypatch):
    def misbehaving(model, feeds, configs, say, skip):
        say(attempt.Step("build", configs[0]))
        if model.graph.node[0].op_type == "Ceil":
            os._exit(3)
        if model.graph.node[0].op_type == "Floor":
            time.sleep(60)
        return [attempt.Event("agree")]

    monkeypatch.setattr(pool, "attempt", misbehaving)
    model = model_of([NODE(op, ["x"], ["y"])], {"x": X}, ["y"])
    config = attempt.Config(0, "llvm")
    worker = pool.Worker(limit=1.0)
    task = pool.Given(model.SerializeToString(), {"plain": {"x": X}}, (config,))
    for _ in range(2):
        (event,) = worker.run(task).events
        assert event.kind == kind
        assert kind == "agree" or event.config == config
    worker.close()


def test_where_onnxruntime_ends_the_process_baton_is_tried_alone(monkeypatch):
    def fatal(model, feeds, configs, say, skip):
        say(attempt.Step("reference", feed="extreme"))
        if "extreme" not in skip:
            os._exit(3)
        return [attempt.Event("undefined")]

    monkeypatch.setattr(pool, "attempt", fatal)
    model = model_of([NODE("Abs", ["x"], ["y"])], {"x": X}, ["y"])
    worker = pool.Worker(limit=5.0)
    outcome = worker.run(pool.Given(model.SerializeToString(), {"extreme": {"x": X}}, ()))
    worker.close()
    assert [event.kind for event in outcome.events] == ["undefined"]


# ---------------------------------------------------------------- findings


def test_a_failure_is_cut_down_to_the_node_that_fails_and_to_few_elements(tmp_path):
    nodes = [
        NODE("Exp", ["x"], ["a"]),
        NODE("Transpose", ["a"], ["b"]),
        NODE("Softmax", ["b"], ["c"]),
        NODE("Neg", ["c"], ["d"]),
    ]
    feed = {"x": np.ones((4, 6), "float32")}
    case = minimize.Small(model_of(nodes, feed, ["a", "d"]), feed)

    def fails(small):
        return any(node.op_type == "Softmax" for node in small.model.graph.node)

    small = minimize.minimize(minimize.alone(case, fails), fails, 60)
    assert [node.op_type for node in small.model.graph.node] == ["Softmax"]
    assert [array.shape for array in small.feed.values()] == [(1, 1)]

    event = attempt.Event("wrong", "1 of 1 differ", attempt.Config(3, "llvm"), "plain")
    place = run_models.write(run_models.Finding(event, small, "--seed 0"), tmp_path, 1)
    ast.parse((place / "test_case.py").read_text())
    read = run_models.read(place)
    assert read.model == small.model
    np.testing.assert_array_equal(*(next(iter(s.feed.values())) for s in (read, small)))


def test_a_short_run_has_no_findings(tmp_path, capsys):
    """As `make fuzz`, in this many small cases."""
    plan = run_models.Plan(seed=SEED, graphs=GRAPHS, nodes=3, findings=tmp_path)
    assert run_models.run(plan) == 0, capsys.readouterr().out


SEED, GRAPHS = 0, 30
