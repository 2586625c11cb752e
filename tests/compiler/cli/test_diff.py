"""`baton diff` names the operator and the pass or region of seeded faults."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
import tvm
import tvm_ffi
from onnx import TensorProto, helper, numpy_helper
from tvm import relax, tirx

from compiler.cli import Difference
from compiler.cli.app import app
from compiler.cli.compile import BuildOptions
from compiler.cli.models import error_of
from compiler.ir.rewrite import CallRule, operator_name, rewrite_calls
from compiler.lowering import pipeline
from compiler.lowering.kernel_passes import pipeline as kernel_pipeline
from compiler.lowering.pass_flags import PassFlag
from compiler.partition import Strategy, register


@pytest.fixture(autouse=True)
def _threads(monkeypatch):
    monkeypatch.setenv("TVM_NUM_THREADS", "1")  # the command sets it; this puts it back


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """A network with one operator of each kind that the faults are about."""
    rng = np.random.default_rng(0)
    weights = {
        "filters": rng.standard_normal((4, 3, 1, 1)).astype("float32") / 2,
        "matrix": rng.standard_normal((256, 10)).astype("float32") / 8,
        "two": np.array(2, "float32"),
        "low": np.array(-1, "float32"),
        "high": np.array(1, "float32"),
    }
    nodes = [
        helper.make_node("Conv", ["data", "filters"], ["c"], "conv"),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("Flatten", ["r"], ["f"], "flatten"),
        helper.make_node("MatMul", ["f", "matrix"], ["m"], "matmul"),
        helper.make_node("Clip", ["m", "low", "high"], ["k"], "clip"),
        helper.make_node("Sub", ["two", "k"], ["s"], "sub"),
        helper.make_node("Tanh", ["s"], ["t"], "tanh"),
        helper.make_node("Softmax", ["t"], ["x"], "softmax"),
        helper.make_node("Sqrt", ["x"], ["scores"], "sqrt"),
    ]
    graph = helper.make_graph(
        nodes,
        "nine",
        [helper.make_tensor_value_info("data", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 10])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    path = tmp_path_factory.mktemp("diff") / "nine.onnx"
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


@pytest.fixture
def diff(cli, network):
    def run(a, b, *words):
        result = cli.invoke(app, ["diff", a, b, str(network), "--random", "--json", *words])
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout)

    return run


def wrong_calls(operator, change):
    """The step that replaces calls of an operator of Relax in `main`."""

    class Wrong(CallRule):
        def rewrite(self, call, name):
            return change(*call.args) if operator_name(call) == operator else None

    def run(state):
        state.mod = rewrite_calls(state.mod, Wrong)

    return run


def insert(monkeypatch, name, run, before="select", needs=()):
    steps = list(pipeline.SCHEDULE)
    at = next(index for index, step in enumerate(steps) if step.name == before)
    steps.insert(at, pipeline.Step(name, run, needs))
    monkeypatch.setattr(pipeline, "SCHEDULE", tuple(steps))


def wrap(monkeypatch, name, change):
    """Have a step change its module at its end."""

    def of(step):
        def run(state):
            step.run(state)
            state.mod = change(state.mod)

        return step._replace(run=run) if step.name == name else step

    monkeypatch.setattr(pipeline, "SCHEDULE", tuple(map(of, pipeline.SCHEDULE)))


GRAPH_FAULTS = {
    "constant": (
        "matmul",
        lambda x, w: relax.op.matmul(x, relax.op.multiply(w, relax.const(1.01))),
    ),
    "clip": ("clip", lambda x, low, high: x),
    "sub": ("subtract", lambda a, b: relax.op.subtract(b, a)),
    "tanh": (
        "tanh",
        lambda x: relax.op.astype(relax.op.astype(relax.op.tanh(x), "float16"), "float32"),
    ),
    "softmax": ("nn.softmax", lambda x: relax.op.log(relax.op.nn.softmax(x) - relax.const(0.1))),
}


@pytest.mark.parametrize("fault", GRAPH_FAULTS)
def test_a_wrong_graph_pass_is_found(diff, monkeypatch, fault):
    operator, change = GRAPH_FAULTS[fault]
    insert(monkeypatch, f"wrong {fault}", wrong_calls(operator, change))
    found = diff("baton", "onnxruntime", "--bisect")
    assert found["first"] == ["matmul" if fault == "constant" else fault]
    assert found["cause"] == [f"wrong {fault}"]


def test_the_wrong_side_of_the_two_is_named(diff, monkeypatch):
    insert(monkeypatch, "wrong clip", wrong_calls(*GRAPH_FAULTS["clip"]))
    found = diff("baton", "onnxruntime")
    assert found["off"]["onnxruntime"] < 1e-5 < 1e-2 < found["off"]["baton"]
    differing = [row["operator"] for row in found["rows"] if row["differs"]]
    assert differing[0] == "clip" and "matmul" not in differing
    assert not found["cause"]


def test_nan_of_one_side_is_a_difference(diff, monkeypatch):
    insert(monkeypatch, "wrong softmax", wrong_calls(*GRAPH_FAULTS["softmax"]))
    found = diff("onnxruntime", "baton")
    assert "inf" in [row["error"] for row in found["rows"] if row["operator"] == "softmax"]
    assert found["off"]["baton"] == "inf"


def minima(func):
    """A kernel with minima for maxima."""
    swap = (tirx.Max, lambda node: tirx.Min(node.a, node.b))
    return func.with_body(tvm_ffi.structural_map(func.body, swap))


def wrong_kernels(monkeypatch, *words):
    """Scheduled kernels with minima for maxima, those whose name has all the words."""

    def change(mod):
        kernels = {
            gvar: minima(each)
            for gvar, each in mod.functions_items()
            if isinstance(each, tirx.PrimFunc) and all(word in gvar.name_hint for word in words)
        }
        return tvm.IRModule({**dict(mod.functions_items()), **kernels})

    wrap(monkeypatch, "schedule kernels", change)


def test_a_wrong_schedule_is_found(diff, monkeypatch):
    wrong_kernels(monkeypatch, "relu")
    found = diff("baton", "onnxruntime", "--bisect")
    assert found["first"] == ["relu"]
    assert found["cause"] == ["schedule kernels"]


def test_a_fault_of_a_fused_kernel_names_its_operators_together(diff, monkeypatch):
    wrong_kernels(monkeypatch, "conv2d", "relu")
    found = diff("baton", "onnxruntime")
    assert found["first"] == ["conv", "relu"]
    assert "only when compiled without outputs between them" in found["findings"][0]


def test_a_wrong_pass_of_kernels_is_found(diff, monkeypatch, compiles_every_kernel):
    wrong = tirx.transform.prim_func_pass(
        lambda func, *_: minima(func) if "relu" in str(func.attrs["global_symbol"]) else func,
        opt_level=0,
        name="WrongMaxima",
    )
    passes = kernel_pipeline.optional_cpu_passes
    monkeypatch.setattr(kernel_pipeline, "optional_cpu_passes", lambda: [*passes(), wrong])
    monkeypatch.setattr(pipeline, "optional_cpu_passes", lambda: [*passes(), wrong])
    found = diff("baton", "onnxruntime", "--bisect")
    assert "relu" in found["first"]
    assert found["cause"] == ["WrongMaxima"]


def test_a_wrong_simplification_is_found(diff, monkeypatch):
    from compiler import ir

    class Wrong(CallRule):
        def rewrite(self, call, name):
            return call.args[0] if name == "clip" else None

    passes = [*ir.simplify_passes(), ir.rewrite.call_pass("WrongClip", 0, Wrong)()]
    monkeypatch.setattr(ir, "simplify_passes", lambda: passes)
    monkeypatch.setattr(pipeline, "simplify_passes", lambda: passes)
    found = diff("baton", "onnxruntime", "--bisect")
    assert (found["first"], found["cause"]) == (["clip"], ["WrongClip"])


def test_a_flag_of_a_step_is_found(diff, monkeypatch):
    flag = PassFlag("WrongTanh", 3)
    insert(monkeypatch, "wrong tanh", wrong_calls(*GRAPH_FAULTS["tanh"]), needs=(flag,))
    found = diff("baton", "baton:opt_level=0", "--bisect")
    assert (found["first"], found["cause"]) == (["tanh"], ["WrongTanh"])


def engine(name, wrong):
    """A back end that computes ReLU or tanh of Relay; the wrong operator is off by 1 %."""

    def compile_part(subgraph, params, options):
        ((_, function),) = subgraph.functions_items()
        operator = str(function.body.blocks[0].bindings[0].value.op.name)
        compute = np.tanh if "tanh" in operator else lambda x: np.maximum(x, 0)
        factor = np.float32(1.01 if wrong in operator else 1)
        return lambda x: compute(x) * factor

    def select(graph_json, ids, options):
        for index, node in enumerate(json.loads(graph_json)["nodes"]):
            if node["op"] in ("nn.relu", "tanh"):
                ids[index] = index

    register(name, Strategy("each", select), compile=compile_part)


@pytest.mark.parametrize("operator, wrong", [("relu", "relu"), ("tanh", "tanh")])
def test_a_wrong_engine_is_found(diff, operator, wrong):
    engine("mine", wrong)
    found = diff("baton:backend=mine", "baton", "--bisect")
    assert found["first"] == [operator]
    (region,) = found["cause"]
    assert region == f"subgraph_mine_each_{['relu', 'tanh'].index(operator)}"


def test_a_slow_pass_is_found(diff, monkeypatch):
    def slow(x):
        for rows, columns in ((10, 1000), (1000, 1000), (1000, 10)):
            x = relax.op.matmul(x, relax.const(np.full((rows, columns), 1e-9, "float32")))
        return x

    def change(x):
        return relax.op.add(relax.op.tanh(x), slow(x))

    insert(monkeypatch, "slow tanh", wrong_calls("tanh", change))
    found = diff("baton", "baton:disable=slow tanh", "--by", "time", "--bisect")
    assert found["cause"] == ["slow tanh"]
    assert any("softmax" in row["operators"] for row in found["rows"])


def test_equal_sides_agree_in_all_tensors(diff):
    found = diff("baton", "baton:precision=strict,disable=FastMath")
    assert found["findings"] == ["all 9 tensors agree"]
    assert [row["operator"] for row in found["rows"]][:3] == ["conv", "relu", "flatten"]


def test_fuel_leaves_out_later_passes(diff, monkeypatch):
    insert(monkeypatch, "wrong clip", wrong_calls(*GRAPH_FAULTS["clip"]))
    assert not diff("baton", "onnxruntime", "--fuel", "0")["first"]


@pytest.mark.parametrize(
    "words, text",
    [
        (["nothing", "baton"], "'nothing' is none of baton, onnxruntime"),
        (["onnxruntime:a=b", "baton"], "'onnxruntime:a=b' is none of"),
        (["baton:speed=1", "baton"], "No such option: --speed"),
        (["baton:opt_level=fast", "baton"], "valid integer"),
        (["baton:disable=Nothing", "baton"], "there is no pass 'Nothing'"),
        (["baton:backend=nothing", "baton"], "nothing"),
        (["baton", "baton", "--by", "size"], "--by size: it can be values or time"),
        (["baton", "onnxruntime", "--by", "time", "--bisect"], "engines have no passes"),
    ],
)
def test_bad_input_is_an_error(cli, network, words, text):
    result = cli.invoke(app, ["diff", *words[:2], str(network), "--random", *words[2:]])
    assert result.exit_code == 1
    assert text in result.stderr.splitlines()[-1]


def test_an_input_without_a_value_is_an_error(cli, network):
    result = cli.invoke(app, ["diff", "baton", "onnxruntime", str(network)])
    assert result.exit_code == 1
    assert "give --input NAME=FILE.npy, or --random" in result.stderr


def test_an_engine_that_is_not_installed_is_an_error(cli, network, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = cli.invoke(app, ["diff", "baton", "openvino", str(network), "--random"])
    assert result.exit_code == 1
    assert "baton is not installed" in result.stderr or "openvino is not installed" in result.stderr


@pytest.fixture
def dynamic(tmp_path):
    """Tanh of any number of rows."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Tanh", ["x"], ["y"])], "any", values[:1], values[1:]
    )
    path = tmp_path / "any.onnx"
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def test_dynamic_extents_come_from_options_or_inputs(cli, dynamic):
    np.save(dynamic.with_name("x.npy"), np.ones((5, 3), "float32"))
    words = ["diff", "baton", "onnxruntime", str(dynamic), "--json"]
    for more, rows in (
        (["--random", "--extent", "n=4"], 4),
        (["--input", f"x={dynamic.with_name('x.npy')}"], 5),
    ):
        result = cli.invoke(app, [*words, *more])
        assert result.exit_code == 0, result.stderr
        assert json.loads(result.stdout)["rows"][0]["type"] == f"float32[{rows}, 3]"
    result = cli.invoke(app, [*words, "--random"])
    assert "dynamic extent 'n'" in result.stderr


def test_the_tolerance_decides_what_differs(dynamic, monkeypatch):
    small = wrong_calls(
        "tanh", lambda x: relax.op.multiply(relax.op.tanh(x), relax.const(1.0 + 1e-5))
    )
    insert(monkeypatch, "rounds", small)
    found = Difference(
        dynamic, "baton", "onnxruntime", seed=0, build=BuildOptions(extents={"n": 4})
    )
    assert found.findings == ["all 1 tensors agree"]
    found = Difference(
        *(dynamic, "baton", "onnxruntime"),
        seed=0,
        tolerance=1e-6,
        build=BuildOptions(extents={"n": 4}),
    )
    assert found.first == ["Tanh_0"]


def test_errors_are_relative_to_rows():
    big, small = np.full((2, 4), 100, "float32"), np.full((2, 4), 100, "float32")
    small[1] = big[1] = 2
    small[1, 0] += 0.01
    assert error_of(small, big) == pytest.approx(0.005, rel=1e-3)
    assert error_of(small, big, floor=1) == pytest.approx(1e-4, rel=1e-3)
    nan = big.copy()
    nan[0, 0] = np.nan
    assert error_of(nan, big) == np.inf
    assert error_of(nan, nan) == 0
    assert error_of(np.array([3], "int8"), np.array([4], "int8")) == 0
    assert error_of(np.array([3]), np.array([4])) == 0.25


def test_a_difference_that_inputs_explain_is_none(tmp_path, monkeypatch):
    """A clip makes rounding of its large input large relative to its own results."""
    nodes = [
        helper.make_node("Mul", ["x", "k"], ["m"]),
        helper.make_node("Clip", ["m", "zero", "one"], ["c"]),
        helper.make_node("ReduceMean", ["c"], ["y"], keepdims=0),
    ]
    consts = {"k": 100.0, "zero": 0.0, "one": 1.0}
    graph = helper.make_graph(
        nodes,
        "clipped",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [64, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [])],
        [numpy_helper.from_array(np.array(v, "float32"), name) for name, v in consts.items()],
    )
    path = tmp_path / "clipped.onnx"
    opsets = [helper.make_opsetid("", 13)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    insert(monkeypatch, "rounds", wrong_calls("multiply", lambda x, k: x * k + relax.const(2e-3)))
    found = Difference(path, "baton", "onnxruntime", seed=0)
    assert found.findings == ["all 3 tensors agree"]
    assert found.rows[1]["error"] > found.rows[1]["tolerance"]
