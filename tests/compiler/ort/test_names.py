"""States of onnxruntime's public names; working names give the same results in both."""

from __future__ import annotations

import functools
import importlib
import json
import pathlib
import threading

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from compiler import ort
from compiler.errors import BatonError, InputError, RejectedNameError
from compiler.ort.names import state_of
from scripts.reports import onnxruntime_names

theirs = pytest.importorskip("onnxruntime")
PAGE = pathlib.Path(__file__).parents[3] / "docs" / "onnxruntime_names.md"
NAMES = onnxruntime_names.public_names(theirs)
X = np.array([[1, 2], [3, 4]], "float32")


def model() -> bytes:
    """y = x + w, of dynamic rows; w is [1, 2]."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])
    x.type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"], name="add")],
        "g",
        [x],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2])],
        [onnx.numpy_helper.from_array(np.array([1, 2], "float32"), "w")],
    )
    opsets = [helper.make_opsetid("", 17)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name="tests")
    made.metadata_props.add(key="author", value="someone")
    return made.SerializeToString()


@functools.cache
def session(api):
    """A session of a module with onnxruntime's names."""
    return new_session(api)


def new_session(api, options=None):
    return api.InferenceSession(model(), options, providers=["CPUExecutionProvider"])


def with_options(change):
    """Inputs, outputs and results of a session whose options were changed."""

    def use(api):
        options = api.SessionOptions()
        kept = change(api, options)
        made = new_session(api, options)
        shapes = [each.shape for each in (*made.get_inputs(), *made.get_outputs())]
        return kept, shapes, made.run(None, {"x": X})[0].tolist()

    return use


def bound(*steps):
    """The outputs of a binding after steps, each a method and its arguments."""

    def use(api):
        value = api.OrtValue.ortvalue_from_numpy(X)
        into = api.OrtValue.ortvalue_from_shape_and_type([2, 2], np.float32)
        made = session(api)
        binding = made.io_binding()
        binding.bind_ortvalue_input("x", value)
        binding.bind_output("y")
        for name, *arguments in steps:
            given = [into if each is OrtValueOutput else each for each in arguments]
            result = getattr(binding, name)(*given)
        made.run_with_iobinding(binding)
        assert result is None or len(result) in (0, 1)
        return [each.tolist() for each in binding.copy_outputs_to_cpu()]

    return use


OrtValueOutput = object()
ADDRESS = ("cpu", 0, np.float32, [2, 2], X.ctypes.data)
OUT = np.zeros((2, 2), "float32")


@functools.cache
def value(api, row=None):
    """A value of X, or of a row; onnxruntime wants it alive as long as what uses it."""
    return api.OrtValue.ortvalue_from_numpy(X if row is None else np.array(row, "float32"))


def started(run):
    """The results of a call that gives them to a callback."""

    def use(api):
        seen, done = [], threading.Event()

        def callback(results, data, message):
            seen.append(([each.tolist() for each in results], data, message))
            done.set()

        run(session(api), callback)
        assert done.wait(60)
        return seen

    return use


def terminated(api):
    options = api.RunOptions()
    options.terminate = True
    errors = importlib.import_module(f"{api.__name__}.capi.onnxruntime_pybind11_state")
    with pytest.raises(errors.Fail):
        session(api).run(None, {"x": X}, options)


def entries(make):
    def use(api):
        options = make(api)
        add, get = (getattr(options, name) for name in dir(options) if "_config_entry" in name)
        add("key", "value")
        return get("key")

    return use


def updated(api):
    changed = api.OrtValue.ortvalue_from_shape_and_type([2, 2], np.float32)
    changed.update_inplace(X)
    first = changed.numpy().tolist()
    changed.update_inplace(api.OrtValue.ortvalue_from_numpy(X * 2))
    return first, changed.numpy().tolist()


def profile(api, folder, monkeypatch):
    """The file that a profiled session writes, and the session."""
    monkeypatch.chdir(folder)
    options = api.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = "times"
    made = new_session(api, options)
    for _ in range(2):
        made.run(None, {"x": X})
    return made.end_profiling(), made


def of_inputs(attribute):
    return lambda api: [getattr(each, attribute) for each in session(api).get_inputs()]


USES = {
    "onnxruntime.ExecutionMode": lambda api: int(api.ExecutionMode.ORT_PARALLEL),
    "onnxruntime.ExecutionOrder": lambda api: int(api.ExecutionOrder.PRIORITY_BASED),
    "onnxruntime.GraphOptimizationLevel": lambda api: int(
        api.GraphOptimizationLevel.ORT_ENABLE_ALL
    ),
    "onnxruntime.IOBinding": lambda api: isinstance(session(api).io_binding(), api.IOBinding),
    "onnxruntime.SessionIOBinding": lambda api: isinstance(api.SessionIOBinding, type),
    "onnxruntime.InferenceSession": lambda api: session(api).run(None, {"x": X})[0].tolist(),
    "onnxruntime.ModelMetadata": lambda api: isinstance(
        session(api).get_modelmeta(), api.ModelMetadata
    ),
    "onnxruntime.NodeArg": lambda api: isinstance(session(api).get_inputs()[0], api.NodeArg),
    "onnxruntime.OrtDevice": lambda api: isinstance(api.OrtDevice.make("cpu", 0), api.OrtDevice),
    "onnxruntime.OrtValue": lambda api: np.asarray(value(api)).tolist(),
    "onnxruntime.RunOptions": lambda api: (
        session(api).run(["y"], {"x": X}, api.RunOptions())[0].tolist()
    ),
    "onnxruntime.SessionOptions": with_options(lambda api, options: None),
    "onnxruntime.__version__": lambda api: api.__version__,
    "onnxruntime.version": lambda api: api.version,
    "onnxruntime.get_version_string": lambda api: api.get_version_string(),
    "onnxruntime.capi": lambda api: sorted(
        name for name in dir(api.capi.onnxruntime_pybind11_state) if name in EXCEPTIONS
    ),
    "onnxruntime.get_all_providers": lambda api: "CPUExecutionProvider" in api.get_all_providers(),
    "onnxruntime.get_available_providers": lambda api: (
        "CPUExecutionProvider" in api.get_available_providers()
    ),
    "onnxruntime.get_build_info": lambda api: isinstance(api.get_build_info(), str),
    "onnxruntime.get_device": lambda api: api.get_device() in ("CPU", "GPU"),
    "onnxruntime.has_collective_ops": lambda api: api.has_collective_ops(),
    "onnxruntime.set_default_logger_severity": lambda api: api.set_default_logger_severity(2),
    "InferenceSession.end_profiling": lambda api: session(api).end_profiling(),
    "InferenceSession.get_profiling_start_time_ns": lambda api: session(
        api
    ).get_profiling_start_time_ns(),
    "InferenceSession.get_inputs": lambda api: len(session(api).get_inputs()),
    "InferenceSession.get_outputs": lambda api: [
        (each.name, each.shape, each.type) for each in session(api).get_outputs()
    ],
    "InferenceSession.get_modelmeta": lambda api: session(api).get_modelmeta().producer_name,
    "InferenceSession.get_overridable_initializers": lambda api: session(
        api
    ).get_overridable_initializers(),
    "InferenceSession.get_provider_options": lambda api: session(api).get_provider_options(),
    "InferenceSession.get_providers": lambda api: session(api).get_providers(),
    "InferenceSession.get_session_options": lambda api: isinstance(
        session(api).get_session_options(), api.SessionOptions
    ),
    "InferenceSession.io_binding": bound(("synchronize_inputs",)),
    "InferenceSession.run": lambda api: [
        each.tolist() for each in session(api).run(None, {"x": [[1, 2.5], [3, 4]]})
    ],
    "InferenceSession.run_async": started(
        lambda made, callback: made.run_async(None, {"x": X}, callback, "mine")
    ),
    "InferenceSession.run_with_iobinding": bound(("synchronize_outputs",)),
    "InferenceSession.run_with_ort_values": lambda api: (
        session(api).run_with_ort_values(None, {"x": value(api)})[0].numpy().tolist()
    ),
    "InferenceSession.set_providers": lambda api: session(api).set_providers(
        ["CPUExecutionProvider"]
    ),
    "SessionOptions.add_initializer": with_options(
        lambda api, options: options.add_initializer("w", value(api, (9, 8)))
    ),
    "SessionOptions.add_free_dimension_override_by_name": with_options(
        lambda api, options: options.add_free_dimension_override_by_name("n", 2)
    ),
    "SessionOptions.add_free_dimension_override_by_denotation": with_options(
        lambda api, options: options.add_free_dimension_override_by_denotation("DATA_BATCH", 2)
    ),
    "SessionOptions.add_session_config_entry": entries(lambda api: api.SessionOptions()),
    "SessionOptions.get_session_config_entry": entries(lambda api: api.SessionOptions()),
    "SessionOptions.intra_op_num_threads": with_options(
        lambda api, options: setattr(options, "intra_op_num_threads", 1)
    ),
    "SessionOptions.graph_optimization_level": with_options(
        lambda api, options: setattr(
            options, "graph_optimization_level", api.GraphOptimizationLevel.ORT_DISABLE_ALL
        )
    ),
    "SessionOptions.enable_profiling": lambda api: api.SessionOptions().enable_profiling,
    "SessionOptions.profile_file_prefix": lambda api: api.SessionOptions().profile_file_prefix,
    "RunOptions.add_run_config_entry": entries(lambda api: api.RunOptions()),
    "RunOptions.get_run_config_entry": entries(lambda api: api.RunOptions()),
    "RunOptions.terminate": terminated,
    "OrtValue.data_ptr": lambda api: value(api).data_ptr(),
    "OrtValue.data_type": lambda api: value(api).data_type(),
    "OrtValue.device_name": lambda api: value(api).device_name(),
    "OrtValue.element_type": lambda api: value(api).element_type(),
    "OrtValue.from_dlpack": lambda api: api.OrtValue.from_dlpack(X).numpy().tolist(),
    "OrtValue.has_value": lambda api: value(api).has_value(),
    "OrtValue.is_sparse_tensor": lambda api: value(api).is_sparse_tensor(),
    "OrtValue.is_tensor": lambda api: value(api).is_tensor(),
    "OrtValue.is_tensor_sequence": lambda api: value(api).is_tensor_sequence(),
    "OrtValue.numpy": lambda api: value(api).numpy().tolist(),
    "OrtValue.ortvalue_from_numpy": lambda api: value(api).numpy().dtype,
    "OrtValue.ortvalue_from_numpy_with_onnx_type": lambda api: (
        lambda made: (made.data_type(), made.shape(), made.element_type())
    )(
        api.OrtValue.ortvalue_from_numpy_with_onnx_type(
            np.ones((3, 1), "uint16"), TensorProto.BFLOAT16
        )
    ),
    "OrtValue.ortvalue_from_shape_and_type": lambda api: [
        (made.data_type(), made.shape())
        for made in (
            api.OrtValue.ortvalue_from_shape_and_type([3, 4], np.int64),
            api.OrtValue.ortvalue_from_shape_and_type([3], TensorProto.DOUBLE),
        )
    ],
    "OrtValue.shape": lambda api: value(api).shape(),
    "OrtValue.tensor_size_in_bytes": lambda api: value(api).tensor_size_in_bytes(),
    "OrtValue.update_inplace": updated,
    "IOBinding.bind_cpu_input": bound(("bind_cpu_input", "x", X * 2)),
    "IOBinding.bind_input": bound(("clear_binding_inputs",), ("bind_input", "x", *ADDRESS)),
    "IOBinding.bind_ortvalue_input": bound(("get_outputs",)),
    "IOBinding.bind_ortvalue_output": bound(("bind_ortvalue_output", "y", OrtValueOutput)),
    "IOBinding.bind_output": bound(
        ("bind_output", "y", "cpu", 0, np.float32, [2, 2], OUT.ctypes.data)
    ),
    "IOBinding.clear_binding_inputs": bound(
        ("clear_binding_inputs",), ("bind_cpu_input", "x", X * 3)
    ),
    "IOBinding.clear_binding_outputs": bound(("clear_binding_outputs",), ("bind_output", "y")),
    "IOBinding.copy_outputs_to_cpu": bound(("synchronize_inputs",)),
    "IOBinding.get_outputs": bound(("get_outputs",)),
    "IOBinding.get_outputs_as_ortvaluevector": bound(("get_outputs_as_ortvaluevector",)),
    "IOBinding.synchronize_inputs": bound(("synchronize_inputs",)),
    "IOBinding.synchronize_outputs": bound(("synchronize_outputs",)),
    **{
        f"ModelMetadata.{name}": lambda api, name=name: getattr(session(api).get_modelmeta(), name)
        for name in NAMES["ModelMetadata"]
    },
    **{f"NodeArg.{name}": of_inputs(name) for name in NAMES["NodeArg"]},
    "OrtDevice.make": lambda api: api.OrtDevice.make("cuda", 1).device_id(),
    **{
        f"OrtDevice.{name}": lambda api, name=name: [
            getattr(api.OrtDevice.make(kind, 2), name)() for kind in ("cpu", "gpu", "cuda", "npu")
        ]
        for name in ("device_id", "device_mem_type", "device_type", "device_vendor_id")
    },
}
"""A use of each working name, whose result must equal onnxruntime's."""

EXCEPTIONS = (
    *("DeviceReset", "EPFail", "EngineError", "Fail", "InvalidArgument", "InvalidGraph"),
    *("InvalidProtobuf", "ModelLoadCanceled", "ModelLoaded", "ModelRequiresCompilation"),
    *("NoModel", "NoSuchFile", "NotFound", "NotImplemented", "RuntimeException"),
)

ELSEWHERE = {"SessionOptions.add_external_initializers": "test_initializers_may_be_external"}
"""Names that work and that another test here uses."""


@pytest.fixture(scope="module")
def owners():
    """An object of ours by the name of its class."""
    options = ort.SessionOptions()
    made = session(ort)
    return {
        "onnxruntime": ort,
        "InferenceSession": made,
        "SessionOptions": options,
        "RunOptions": ort.RunOptions(),
        "OrtValue": value(ort),
        "IOBinding": made.io_binding(),
        "ModelMetadata": made.get_modelmeta(),
        "NodeArg": made.get_inputs()[0],
        "OrtDevice": ort.OrtDevice.make("cpu", 0),
    }


@pytest.mark.parametrize("owner", NAMES)
def test_names_are_in_their_state(owner, owners):
    for name in NAMES[owner]:
        state, note = state_of(f"{owner}.{name}")
        if f"{owner}.{name}" == "SessionOptions.optimized_model_filepath":
            continue  # test_an_option_is_rejected_when_it_is_set
        if state in ("works", "ignored"):
            assert hasattr(owners[owner], name), name
            assert state == "works" or note, name
            continue
        with pytest.raises(AttributeError) as raised:
            getattr(owners[owner], name)
        assert isinstance(raised.value, RejectedNameError) == (state == "rejected"), name
        assert state == "missing" or note in str(raised.value), name
        if theirs.__version__ == ort.__version__:
            assert state != "missing", f"onnxruntime_names.txt has no line for {owner}.{name}"


def test_each_name_that_works_is_used_here():
    working = {
        f"{owner}.{name}"
        for owner, names in NAMES.items()
        for name in names
        if state_of(f"{owner}.{name}")[0] == "works"
    }
    assert working == set(USES) | set(ELSEWHERE)
    assert set(ELSEWHERE.values()) <= set(globals())


@pytest.mark.parametrize("name", USES)
def test_a_name_that_works_gives_what_onnxruntime_gives(name):
    assert USES[name](ort) == USES[name](theirs)


@pytest.mark.parametrize("name", ["set_seed", "set_default_logger_verbosity", "preload_dlls"])
def test_an_ignored_function_logs_that_it_has_no_effect(name, caplog):
    with caplog.at_level("INFO", "baton.ort"):
        assert getattr(ort, name)(1) is None
    assert f"onnxruntime.{name} has no effect" in caplog.text


def test_an_option_is_rejected_when_it_is_set():
    options = ort.SessionOptions()
    options.optimized_model_filepath = "model.onnx"
    with pytest.raises(InputError, match="baton compile -o"):
        new_session(ort, options)


def test_the_page_has_the_states():
    assert PAGE.read_text() == onnxruntime_names.page(theirs), (
        "run `python -m scripts.reports.onnxruntime_names`"
    )


def test_exceptions_have_onnxruntimes_names(tmp_path):
    errors = ort.capi.onnxruntime_pybind11_state
    for name in EXCEPTIONS:
        assert issubclass(getattr(errors, name), BatonError), name
    with pytest.raises(errors.NoSuchFile):
        ort.InferenceSession(tmp_path / "missing.onnx")
    with pytest.raises(errors.InvalidProtobuf):
        ort.InferenceSession(b"nothing")
    with pytest.raises(errors.InvalidArgument, match=r"takes float32, and the value is float64"):
        session(ort).run(None, {"x": X.astype("float64")})


def test_a_profile_is_a_chrome_trace(tmp_path, monkeypatch):
    kinds = {}
    for api in (ort, theirs):
        path, made = profile(api, tmp_path, monkeypatch)
        assert path.startswith("times_") and path.endswith(".json")
        events = json.loads((tmp_path / path).read_text())
        assert all(event["ph"] == "X" and event["dur"] >= 0 for event in events)
        runs = [event for event in events if event["name"] == "model_run"]
        nodes = [event for event in events if event["cat"] == "Node"]
        assert len(runs) == 2
        assert len([each for each in nodes if each["name"].endswith("_kernel_time")]) == 2
        kinds[api] = {(each["args"]["op_name"].lower(), each["args"]["provider"]) for each in nodes}
        assert made.get_profiling_start_time_ns() > 0
        assert made.end_profiling() == ""
    assert kinds[ort] == kinds[theirs] == {("add", "CPUExecutionProvider")}


def test_a_profile_of_ours_names_the_nodes(tmp_path, monkeypatch):
    path, _ = profile(ort, tmp_path, monkeypatch)
    events = json.loads((tmp_path / path).read_text())
    (run, *_) = (event for event in events if event["name"] == "model_run")
    (node, *_) = (event for event in events if event["cat"] == "Node")
    assert node["args"]["nodes"] == ["add"]
    assert run["ts"] <= node["ts"] and node["ts"] + node["dur"] <= run["ts"] + run["dur"]


def test_initializers_may_be_external(tmp_path):
    proto = onnx.load_from_string(model())
    onnx.save(
        proto, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0
    )
    (tmp_path / "w.bin").unlink()
    found = []
    for api in (ort, theirs):
        given = api.OrtValue.ortvalue_from_numpy(np.array([5, 6], "float32"))
        options = api.SessionOptions()
        options.add_external_initializers(["w"], [given])
        made = api.InferenceSession(str(tmp_path / "m.onnx"), options)
        found.append(made.run(None, {"x": X})[0].tolist())
        with pytest.raises(Exception, match="initializer"):  # its data is in the model
            new_session(api, options)
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("v", np.zeros(2, "float32"), "no initializer 'v'"),
        ("w", np.zeros(3, "float32"), r"'w' is float32\[2\]; the value is float32\[3\]"),
        ("w", np.zeros(2, "int32"), r"'w' is float32\[2\]; the value is int32\[2\]"),
    ],
)
def test_initializers_that_do_not_fit_are_errors(name, array, message):
    options = ort.SessionOptions()
    options.add_initializer(name, ort.OrtValue.ortvalue_from_numpy(array))
    with pytest.raises(InputError, match=message):
        new_session(ort, options)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([["a", 1]], "x"),
        (np.zeros((1, 2), "int32"), "takes float32, and the value is int32"),
        ([[1 + 2j, 3]], "complex128"),
    ],
)
def test_values_of_other_types_are_errors(given, message):
    with pytest.raises(InputError, match=message):
        session(ort).run(None, {"x": given})
