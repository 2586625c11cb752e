from __future__ import annotations

import json
import subprocess
import sys

import pytest
import tvm

from compiler import relay
from compiler.errors import SavedModuleError
from compiler.tvm_faults.saved_graph import check_document

# An array that holds itself.
ENDLESS = json.dumps(
    {"root_index": 1, "nodes": [{"type": "None"}, {"type": "ffi.Array", "data": [1]}]}
)


def test_nodes_that_hold_themselves_end_the_process_of_tvm():
    program = f"import tvm; tvm.ir.load_json({ENDLESS!r})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=120)
    assert done.returncode < 0


@pytest.mark.parametrize(
    "text",
    [
        ENDLESS,
        ENDLESS.replace("[1]", "[-1]"),
        ENDLESS.replace("[1]", "[7]"),
        json.dumps({"root_index": 0, "nodes": [{"type": "None"}]}),
        json.dumps({"root_index": 0, "nodes": [3]}),
        json.dumps({"root_index": 0, "nodes": None}),
    ],
)
def test_damaged_nodes_are_refused(text):
    with pytest.raises(SavedModuleError):
        relay.load_json(text)


def test_nodes_within_nodes_without_end_are_refused():
    nodes = [{"type": "None"}] + [{"type": "ffi.Array", "data": [n]} for n in range(100_000)]
    with pytest.raises(ValueError, match="nested"):
        check_document({"root_index": 100_000, "nodes": nodes})


def test_a_call_without_an_operand_and_a_document_of_something_else_are_refused():
    x = relay.var("x", shape=(2, 3))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.exp(x)))
    document = json.loads(tvm.ir.save_json(relay.to_relax(mod)))
    nodes = document["nodes"]
    call = next(node for node in nodes if node["type"] == "ir.Call")
    operands = nodes[call["data"]["args"]]["data"]
    operands[0] = next(at for at, node in enumerate(nodes) if node["type"] == "None")
    with pytest.raises(SavedModuleError, match="lacks a part"):
        relay.load_json(json.dumps(document))
    with pytest.raises(SavedModuleError, match="not a module"):
        relay.load_json(str(tvm.ir.save_json([1, 2])))


def test_what_tvm_writes_passes():
    x = relay.var("x", shape=(2, 3))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.softmax(relay.exp(x))))
    for each in (mod, relay.to_relax(mod)):
        check_document(json.loads(tvm.ir.save_json(each)))
