from __future__ import annotations

import json
import subprocess
import sys

import pytest
import tvm
from tvm import relax

from compiler import relay
from compiler.errors import SavedModuleError
from compiler.tvm_workarounds.validate_json import check_document

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


def relax_document():
    """softmax(exp(x)) @ w in Relax's operators, as parsed JSON."""
    x, w = relay.var("x", shape=(2, 3)), relay.var("w", shape=(3, 4))
    body = relay.nn.matmul(relay.nn.softmax(relay.exp(x)), w)
    mod = relay.to_relax(tvm.IRModule.from_expr(relay.Function([x, w], body)))
    return json.loads(tvm.ir.save_json(mod))


def first(document, kind):
    return next(node for node in document["nodes"] if node["type"] == kind)


def number_of(document, kind):
    return document["nodes"].index(first(document, kind))


def an_integer_that_is_its_own_value(document):
    number = number_of(document, "ir.IntImm")
    document["nodes"][number]["data"]["value"] = number


def a_call_without_an_operand(document):
    document["nodes"][first(document, "ir.Call")["data"]["args"]]["data"][0] = 0


def a_call_of_nothing(document):
    first(document, "ir.Call")["data"]["op"] = 0


def a_function_without_a_body(document):
    first(document, "relax.expr.Function")["data"]["body"] = 0


def an_operator_with_anothers_attributes(document):
    matmul, softmax = (
        next(
            node["data"]
            for node in document["nodes"]
            if node["type"] == "ir.Call" and document["nodes"][node["data"]["op"]]["data"] == name
        )
        for name in ("relax.matmul", "relax.nn.softmax")
    )
    matmul["attrs"] = softmax["attrs"]


def a_shape_for_a_name(document):
    first(document, "ir.Var")["data"]["name"] = number_of(document, "relax.expr.ShapeExpr")


def an_odd_map(document):
    first(document, "ffi.Map")["data"].append(0)


def a_field_that_no_call_has(document):
    first(document, "ir.Call")["data"]["arguments"] = 0


def a_rank_of_text(document):
    first(document, "relax.TensorType")["data"]["ndim"] = "2"


def a_root_that_is_not_there(document):
    document["root_index"] = len(document["nodes"])


@pytest.mark.parametrize(
    "damage",
    [
        an_integer_that_is_its_own_value,
        a_call_without_an_operand,
        a_call_of_nothing,
        a_function_without_a_body,
        an_operator_with_anothers_attributes,
        a_shape_for_a_name,
        an_odd_map,
        a_field_that_no_call_has,
        a_rank_of_text,
        a_root_that_is_not_there,
    ],
)
def test_what_a_class_of_tvm_does_not_hold_is_refused(damage):
    document = relax_document()
    check_document(document)
    damage(document)
    with pytest.raises(ValueError, match=r"node|root"):
        check_document(document)
    with pytest.raises(SavedModuleError):
        relay.load_json(json.dumps(document))


def test_a_document_of_something_else_is_refused():
    with pytest.raises(SavedModuleError, match="not a module"):
        relay.load_json(str(tvm.ir.save_json([1, 2])))


def test_what_tvm_writes_passes():
    x = relay.var("x", shape=(2, 3))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.softmax(relay.exp(x))))
    kernels = relax.transform.LegalizeOps()(relay.to_relax(mod))
    bound = tvm.s_tir.Schedule(kernels)
    name = next(
        str(each.name_hint) for each in kernels.get_global_vars() if each.name_hint != "main"
    )
    bound.work_on(name)
    bound.bind(
        bound.get_loops(bound.get_child_blocks(bound.get_sblock("root", name))[0])[0], "threadIdx.x"
    )
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_80"}, host="llvm")
    for each in (mod, kernels, bound.mod, target):
        check_document(json.loads(tvm.ir.save_json(each)))
