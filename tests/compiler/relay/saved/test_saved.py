import json
import struct
import subprocess
import sys

import numpy as np
import pytest
import tvm

from compiler import relay
from compiler.errors import SavedModuleError
from compiler.relay.saved.params import read_params
from compiler.runtime import graph_executor
from tests.compiler.relay.oracle import FOLDER, assert_same, flat, programs, read

SAVED = [case for case in programs() if "json" in case]


def test_saved_modules_read_as_their_text_does():
    for case in SAVED:
        from_json = relay.load_json(case["json"])
        assert [p.name for p in from_json["main"].params] == [p["name"] for p in case["params"]]


@pytest.mark.parametrize("case", SAVED[::12], ids=lambda case: case["id"])
def test_saved_modules_compute_what_relay_computed(case):
    got = flat(
        relay.create_executor("vm", relay.load_json(case["json"])).evaluate()(*case["inputs"])
    )
    assert_same(case, got)


def test_a_network_from_text_json_and_parameter_file_gives_the_stored_outputs():
    params = read_params((FOLDER / "mlp.params").read_bytes())
    stored = np.load(FOLDER / "mlp_io.npz")
    mod = relay.load_json(read("mlp.json.gz"))
    assert relay.astext(mod) == relay.astext(relay.fromtext(read("mlp.relay.txt.gz")))
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(mod, "llvm", params=params)
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(**{name[3:]: stored[name] for name in stored if name.startswith("in_")})
    np.testing.assert_allclose(module.get_output(0).numpy(), stored["out0"], rtol=1e-4, atol=1e-5)


def test_parameters_are_written_byte_for_byte_as_relay_wrote_them():
    data = (FOLDER / "mlp.params").read_bytes()
    assert bytes(relay.save_param_dict(read_params(data))) == data


def test_parameters_of_every_type_survive():
    params = {
        dtype: np.arange(6).reshape(2, 3).astype(dtype)
        for dtype in [
            "int8",
            "int16",
            "int32",
            "int64",
            "uint8",
            "float16",
            "float32",
            "float64",
            "bool",
        ]
    }
    params["scalar"] = np.float32(3)
    params["empty"] = np.zeros((0, 2), "float32")
    loaded = relay.load_param_dict(
        relay.save_param_dict({name: np.asarray(value) for name, value in params.items()})
    )
    for name, value in params.items():
        assert str(loaded[name].dtype) == str(np.asarray(value).dtype)
        np.testing.assert_array_equal(loaded[name].numpy(), value)


def test_a_new_process_reads_a_module_that_this_tvm_saved(tmp_path):
    data = relay.var("data", shape=(2, 3))
    mod = tvm.IRModule.from_expr(relay.Function([data], relay.nn.relu(relay.nn.softmax(data))))
    saved = tmp_path / "module.json"
    saved.write_text(tvm.ir.save_json(mod))
    program = (
        "import sys; from compiler import relay; "
        "print(relay.astext(relay.load_json(open(sys.argv[1]).read())))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, saved], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == relay.astext(mod).strip()
    with pytest.raises(SavedModuleError, match="json: TVM can't read the document"):
        relay.load_json(saved.read_text().replace("nn.softmax", "nn.softmask"))


@pytest.mark.parametrize("cut", [0, 7, 30, 200, 1000])
def test_a_parameter_file_that_is_cut_short_is_an_error(cut):
    data = (FOLDER / "mlp.params").read_bytes()
    with pytest.raises(SavedModuleError):
        relay.load_param_dict(data[:cut])


def test_a_tensor_without_elements_whose_other_extents_no_memory_holds_is_an_error():
    data = bytes(relay.save_param_dict({"p": np.zeros((0, 3), "float32")}))
    shape = struct.pack("<2q", 0, 3)
    assert relay.load_param_dict(data)["p"].shape == (0, 3) and data.count(shape) == 1
    with pytest.raises(SavedModuleError, match="'p'"):
        relay.load_param_dict(data.replace(shape, struct.pack("<2q", 0, 2**62)))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"nodes": 3}',
        '{"root": 1, "nodes": [{"type_key": ""}, 7]}',
        '{"root": Infinity, "nodes": [{"type_key": ""}]}',
        '{"root": 5, "nodes": [{"type_key": ""}]}',
        '{"root": 0, "nodes": [{"type_key": ""}]}',
        '{"root": 0, "nodes": [{"type_key": "relay.Call", "attrs": {"op": "0", "args": "0"}}]}',
        "[" * 100_000,
    ],
)
def test_what_is_no_saved_module_is_an_error(text):
    with pytest.raises(SavedModuleError):
        relay.load_json(text)


def test_a_graph_with_a_circle_is_an_error():
    document = json.loads(SAVED[0]["json"])
    calls = [i for i, node in enumerate(document["nodes"]) if node["type_key"] == "relay.Call"]
    arguments = document["nodes"][int(document["nodes"][calls[0]]["attrs"]["args"])]
    arguments["data"] = [calls[0]] * len(arguments["data"])
    with pytest.raises(SavedModuleError, match="circle"):
        relay.load_json(json.dumps(document))


def test_names_that_are_halves_of_characters_are_refused():
    name = '"main"'
    text = next(case["json"] for case in SAVED if name in case["json"])
    with pytest.raises(SavedModuleError, match="is not text"):
        relay.load_json(text.replace(name, r'"\ud800"'))
