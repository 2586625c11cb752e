"""Scripts of onnxruntime's on Baton, beside onnxruntime itself where it is installed."""

from __future__ import annotations

import gc
import json
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper

from compiler import ort, relay
from compiler.errors import (
    BuildError,
    ExportError,
    FrontendError,
    InputError,
    LoadError,
    TargetError,
    UnsupportedOperatorError,
)

WEIGHT = np.random.default_rng(0).standard_normal((8, 8)).astype("float32")


def model(rows="n", foreign=False) -> bytes:
    """A product and a Relu; with `foreign`, hashes are added, which Baton can't compute."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["y"] if not foreign else ["b"]),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 8])]
    if foreign:
        nodes += [
            helper.make_node("MurmurHash3", ["word"], ["hash"], domain="com.microsoft", positive=1),
            helper.make_node("Constant", [], ["seven"], value_float=7.0),
            helper.make_node("Cast", ["hash"], ["number"], to=TensorProto.FLOAT),
            helper.make_node("Mod", ["number", "seven"], ["small"], fmod=1),
            helper.make_node("Add", ["b", "small"], ["y"]),
        ]
        inputs.append(helper.make_tensor_value_info("word", TensorProto.INT32, [1]))
    graph = helper.make_graph(
        nodes,
        "g",
        inputs,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, 8])],
        [onnx.numpy_helper.from_array(WEIGHT, "w")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name="tests")
    made.metadata_props.add(key="author", value="nobody")
    return made.SerializeToString()


def rows(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, 8)).astype("float32")


def expected(x: np.ndarray) -> np.ndarray:
    return np.maximum(x @ WEIGHT, 0)


@pytest.fixture(scope="module")
def session() -> ort.InferenceSession:
    return ort.InferenceSession(model())


def test_says_of_a_model_what_onnxruntime_says(session, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    (tmp_path / "m.onnx").write_bytes(model(4))
    theirs = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    ours = ort.InferenceSession(tmp_path / "m.onnx")
    for one, other in (
        (ours.get_inputs(), theirs.get_inputs()),
        (ours.get_outputs(), theirs.get_outputs()),
        (session.get_inputs(), onnxruntime.InferenceSession(model()).get_inputs()),
    ):
        assert [(a.name, a.shape, a.type) for a in one] == [
            (b.name, b.shape, b.type) for b in other
        ]
    about, reference = ours.get_modelmeta(), theirs.get_modelmeta()
    for name in ("producer_name", "graph_name", "custom_metadata_map", "domain", "description"):
        assert getattr(about, name) == getattr(reference, name)
    assert ours.get_providers() == theirs.get_providers()
    np.testing.assert_allclose(
        ours.run(None, {"x": rows(4)})[0], theirs.run(None, {"x": rows(4)})[0], rtol=1e-5, atol=1e-5
    )


def test_one_build_serves_all_shapes(session, monkeypatch):
    found = builds(monkeypatch)
    for count in (1, 3, 0, 20):
        (y,) = session.run(["y"], {"x": rows(count)})
        np.testing.assert_allclose(y, expected(rows(count)), rtol=1e-5, atol=1e-5)
    assert [str(part) for part in session.parts] == ["Baton: 2 nodes"]
    assert found == []


def test_static_builds_are_made_as_shapes_come():
    session = limited()
    for count in (1, 3, 1):
        (y,) = session.run(["y"], {"x": rows(count)})
        np.testing.assert_allclose(y, expected(rows(count)), rtol=1e-5, atol=1e-5)
    assert [str(part) for part in session.parts] == ["Baton: 2 nodes"] * 2


def test_parts_of_a_model_serve_all_shapes(monkeypatch):
    onnxruntime = pytest.importorskip("onnxruntime")
    with pytest.warns(UserWarning, match=r"onnxruntime runs 1 nodes .* operator MurmurHash3"):
        session = ort.InferenceSession(model(foreign=True))
    theirs = onnxruntime.InferenceSession(model(foreign=True))
    found = builds(monkeypatch)
    for count in (1, 3, 0):
        feed = {"x": rows(count), "word": np.array([5], "int32")}
        np.testing.assert_allclose(
            session.run(None, feed)[0], theirs.run(None, feed)[0], rtol=1e-5, atol=1e-5
        )
    assert [part.engine for part in session.parts] == ["Baton", "onnxruntime", "Baton"]
    assert found == []


def test_models_that_need_static_builds_are_named_once(monkeypatch):
    build = relay.build

    def static_alone(mod, **arguments):
        if any(not isinstance(n, tvm.tirx.IntImm) for n in mod["main"].params[0].ty.shape):
            raise BuildError("operator MatMul of node 'first': axis 0 is dynamic")
        return build(mod, **arguments)

    monkeypatch.setattr(relay, "build", static_alone)
    with pytest.warns(UserWarning, match="waits for a build: operator MatMul") as seen:
        session = ort.InferenceSession(model())
        for count in (1, 3):
            (y,) = session.run(None, {"x": rows(count)})
            np.testing.assert_allclose(y, expected(rows(count)), rtol=1e-5, atol=1e-5)
    assert len([each for each in seen if "waits for a build" in str(each.message)]) == 1
    options = ort.SessionOptions()
    options.add_session_config_entry("baton.shapes", "symbolic")
    with pytest.raises(BuildError, match="MatMul"):
        ort.InferenceSession(model(), options)
    with pytest.raises(InputError, match="symbolic"):
        options.add_session_config_entry("baton.shapes", "any")


def test_inputs_of_unknown_rank_are_built_as_they_come():
    graph = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    opsets = [helper.make_opsetid("", 17)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    with pytest.warns(UserWarning, match="input 'x' has no shape"):
        session = ort.InferenceSession(proto.SerializeToString())
    for x in (rows(2), rows(2)[0], np.float32(3)):
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], -x)


def limited(**limits: str) -> ort.InferenceSession:
    """A session with static builds."""
    options = ort.SessionOptions()
    options.add_session_config_entry("baton.shapes", "static")
    for name, value in limits.items():
        options.add_session_config_entry(f"baton.{name}", value)
    return ort.InferenceSession(model(), options)


def builds(monkeypatch) -> list[tuple[int, ...]]:
    """The shape of x of every build from now on."""
    found, build = [], relay.build

    def counted(mod, **arguments):
        found.append(tuple(map(int, mod["main"].params[0].ty.shape)))
        return build(mod, **arguments)

    monkeypatch.setattr(relay, "build", counted)
    return found


def test_the_builds_that_were_used_last_are_kept(monkeypatch):
    session, found = limited(cached_builds="2"), builds(monkeypatch)
    for count in (1, 2, 1, 3, 1, 2):
        (y,) = session.run(None, {"x": rows(count)})
        np.testing.assert_allclose(y, expected(rows(count)), rtol=1e-5, atol=1e-5)
        assert len(session.parts) <= 2
    assert found == [(1, 8), (2, 8), (3, 8), (2, 8)]


def test_builds_are_kept_by_their_bytes_and_dropped_ones_are_freed(monkeypatch):
    freed, build = [], relay.build

    def watched(*args, **kwargs):
        library = build(*args, **kwargs)
        weakref.finalize(library, freed.append, len(freed))
        return library

    monkeypatch.setattr(relay, "build", watched)
    session = limited(cached_bytes="1")  # the last one is kept whatever it takes
    for count in (1, 2, 3):
        session.run(None, {"x": rows(count)})
        gc.collect()
        assert len(session.parts) == 1
        assert len(freed) == count - 1
    assert len(limited(cached_bytes="1000000").parts) == 0


def test_threads_share_a_bounded_number_of_builds():
    session = limited(cached_builds="2")

    def request(number):
        x = rows(number % 5 + 1, number)
        return x, session.run(None, {"x": x})[0]

    with ThreadPoolExecutor(8) as pool:
        for x, y in pool.map(request, range(60)):
            np.testing.assert_allclose(y, expected(x), rtol=1e-5, atol=1e-5)
    assert len(session.parts) == 2


def test_requests_run_while_another_shape_is_built(monkeypatch):
    session = limited(cached_builds="2")
    session.run(None, {"x": rows(1)})
    building, go_on, build = threading.Event(), threading.Event(), relay.build

    def waiting(*args, **kwargs):
        building.set()
        assert go_on.wait(60)
        return build(*args, **kwargs)

    monkeypatch.setattr(relay, "build", waiting)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(session.run, None, {"x": rows(2)})
        assert building.wait(60)
        (y,) = session.run(None, {"x": rows(1)})
        go_on.set()
        np.testing.assert_allclose(y, expected(rows(1)), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(other.result()[0], expected(rows(2)), rtol=1e-5, atol=1e-5)


def test_a_build_that_fails_is_tried_again(monkeypatch):
    session, build = limited(), relay.build
    monkeypatch.setattr(relay, "build", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        session.run(None, {"x": rows(1)})
    monkeypatch.setattr(relay, "build", build)
    (y,) = session.run(None, {"x": rows(1)})
    np.testing.assert_allclose(y, expected(rows(1)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("key", "value"),
    [("cached_builds", "0"), ("cached_builds", "many"), ("cached_bytes", "-1"), ("cache", "2")],
)
def test_limits_that_make_no_sense_are_named(key, value):
    with pytest.raises(InputError, match=f"baton.{key}"):
        ort.SessionOptions().add_session_config_entry(f"baton.{key}", value)


@pytest.mark.parametrize("count", [-1, True, 2.0, 1025, 2**70])
def test_a_number_of_threads_out_of_range_is_an_error(count):
    options = ort.SessionOptions()
    options.intra_op_num_threads = count
    with pytest.raises(InputError, match="intra_op_num_threads must be an integer from 0 to 1024"):
        ort.InferenceSession(model(), options)


def test_a_dimension_given_by_name_is_fixed():
    options = ort.SessionOptions()
    options.add_free_dimension_override_by_name("n", 2)
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model(), options)
    assert session.get_inputs()[0].shape == [2, 8]
    assert len(session.parts) == 1
    with pytest.raises(InputError, match="extent 3 along axis 0, expected 2"):
        session.run(None, {"x": rows(3)})


@pytest.mark.parametrize(
    "feed, message",
    [
        ({}, r"inputs are x: tensor\(float\)\['n', 8\]; missing: x; unknown: none"),
        ({"x": rows(1), "z": 1}, "missing: none; unknown: z"),
        ({"x": rows(1).astype("float64")}, "'x' takes float32, and the value is float64"),
        ({"x": rows(1)[0]}, "rank 1, expected 2"),
        ({"x": rows(1)[:, :7]}, "extent 7 along axis 1, expected 8"),
    ],
)
def test_what_does_not_fit_is_refused(session, feed, message):
    with pytest.raises(InputError, match=message):
        session.run(None, feed)


def test_unknown_outputs_and_options_are_refused(session, tmp_path):
    with pytest.raises(InputError, match="no output 'z'"):
        session.run(["z"], {"x": rows(1)})
    with pytest.raises(AttributeError):
        ort.SessionOptions().no_such_option = 1
    with pytest.raises(TargetError, match="TensorrtExecutionProvider"):
        ort.InferenceSession(model(), providers=["TensorrtExecutionProvider"])
    with pytest.warns(UserWarning, match="using CPUExecutionProvider"):
        ort.InferenceSession(
            model(), providers=["TensorrtExecutionProvider", ("CPUExecutionProvider", {})]
        )
    for source in (b"nothing", tmp_path / "missing.onnx"):
        with pytest.raises(FrontendError):
            ort.InferenceSession(source)


def test_arrays_and_values_can_be_bound(session):
    binding = session.io_binding()
    binding.bind_cpu_input("x", rows(2))
    result = np.zeros((2, 8), "float32")
    binding.bind_output("y", "cpu", 0, np.float32, result.shape, result.ctypes.data)
    session.run_with_iobinding(binding)
    np.testing.assert_allclose(result, expected(rows(2)), rtol=1e-5, atol=1e-5)
    value = ort.OrtValue.ortvalue_from_shape_and_type([2, 8], np.float32)
    binding.clear_binding_outputs()
    binding.bind_ortvalue_output("y", value)
    binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(rows(2, seed=1)))
    session.run_with_iobinding(binding)
    np.testing.assert_allclose(value.numpy(), expected(rows(2, seed=1)), rtol=1e-5, atol=1e-5)
    assert value.data_type() == "tensor(float)"
    binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_shape_and_type([3, 8]))
    with pytest.raises(InputError, match="memory bound"):
        session.run_with_iobinding(binding)


def test_threads_and_callbacks_get_their_own_results(session):
    with ThreadPoolExecutor(4) as threads:
        results = threads.map(lambda seed: session.run(None, {"x": rows(2, seed)})[0], range(40))
        for seed, y in enumerate(results):
            np.testing.assert_allclose(y, expected(rows(2, seed)), rtol=1e-5, atol=1e-5)
    done = threading.Event()
    seen = []

    def callback(results, user_data, message):
        seen.append((len(results), user_data, message))
        done.set()

    session.run_async(None, {"x": rows(2)}, callback, "mine")
    assert done.wait(60)
    done.clear()
    session.run_async(None, {}, callback, "mine")
    assert done.wait(60)
    assert seen[0] == (1, "mine", "")
    assert seen[1][0] == 0 and "missing" in seen[1][2]


def test_what_baton_lacks_runs_in_onnxruntime():
    onnxruntime = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(model(2, foreign=True))
    engines = [part.engine for part in session.parts]
    assert engines == ["Baton", "onnxruntime", "Baton"]
    foreign = session.parts[1]
    assert [node.op_type for node in foreign.model.graph.node] == ["MurmurHash3"]
    assert "MurmurHash3" in foreign.reasons[0]
    feed = {"x": rows(2), "word": np.array([5], "int32")}
    theirs = onnxruntime.InferenceSession(model(2, foreign=True))
    np.testing.assert_allclose(
        session.run(None, feed)[0], theirs.run(None, feed)[0], rtol=1e-5, atol=1e-5
    )


def test_without_onnxruntime_the_operator_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(UnsupportedOperatorError, match=r"MurmurHash3.*onnxruntime"):
        ort.InferenceSession(model(2, foreign=True))


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("ort") / "net.so"
    mod, params = relay.frontend.from_onnx(model(), shape={"x": ("n", 8)})
    relay.build(mod, "llvm", params=params).export_library(str(path))
    return path


class TestLibraries:
    def test_runs_by_the_models_names(self, library):
        session = ort.InferenceSession(library)
        (entry,) = session.get_inputs()
        assert (entry.name, entry.shape, entry.type) == ("x", ["n", 8], "tensor(float)")
        for count in (3, 1):
            (found,) = session.run(["y"], {"x": rows(count)})
            np.testing.assert_allclose(found, expected(rows(count)), rtol=1e-5, atol=1e-5)
        assert session.get_providers() == ["CPUExecutionProvider"]
        assert session.parts == []
        with pytest.raises(InputError, match="extent 9 along axis 1, expected 8"):
            session.run(None, {"x": np.zeros((1, 9), "float32")})

    def test_takes_no_initializers(self, library):
        options = ort.SessionOptions()
        options.add_initializer("w", ort.OrtValue.ortvalue_from_numpy(WEIGHT))
        with pytest.raises(InputError, match="has packed weights"):
            ort.InferenceSession(library, options)

    def test_is_profiled(self, library, tmp_path):
        options = ort.SessionOptions()
        options.enable_profiling = True
        options.profile_file_prefix = str(tmp_path / "p")
        session = ort.InferenceSession(library, options)
        session.run(None, {"x": rows(1)})
        events = json.loads(Path(session.end_profiling()).read_text())
        assert [each["name"] for each in events if each["cat"] == "Session"] == [
            "session_initialization",
            "model_run",
        ]
        assert any(each["cat"] == "Node" for each in events)

    def test_a_profile_that_cannot_be_written_is_an_error(self, library, tmp_path):
        options = ort.SessionOptions()
        options.enable_profiling = True
        options.profile_file_prefix = str(tmp_path / "missing" / "p")
        session = ort.InferenceSession(library, options)
        with pytest.raises(ExportError, match="can't write the profile"):
            session.end_profiling()

    def test_runs_where_it_was_built_for(self, library):
        with pytest.raises(TargetError, match=r"was built for .*CPUExecutionProvider, not with"):
            ort.InferenceSession(library, providers=["CUDAExecutionProvider"])

    def test_damaged(self, tmp_path):
        (tmp_path / "net.so").write_bytes(b"no library")
        with pytest.raises(LoadError, match="neither a shared library"):
            ort.InferenceSession(tmp_path / "net.so")


def test_shapes_that_no_engine_takes_are_an_error_of_batons():
    pytest.importorskip("onnxruntime")
    real = TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Concat", ["x", "w"], ["y"], axis=1, name="joined")],
        "g",
        [helper.make_tensor_value_info("x", real, ["n", 8])],
        [helper.make_tensor_value_info("y", real, [None, 16])],
        [onnx.numpy_helper.from_array(WEIGHT, "w")],
    )
    opsets = [helper.make_opsetid("", 17)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    options = ort.SessionOptions()
    options.add_session_config_entry("baton.shapes", "static")
    session = ort.InferenceSession(proto.SerializeToString(), options)
    assert session.run(None, {"x": rows(8)})[0].shape == (8, 16)
    with pytest.raises(UnsupportedOperatorError, match=r"'joined'.*onnxruntime refuses it, too"):
        session.run(None, {"x": rows(3)})
