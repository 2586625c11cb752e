"""Documents of this TVM whose nodes are right each, and do not go together."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tvm

from compiler import relay
from compiler.errors import SavedModuleError
from compiler.relay.type_infer import set_type


def program():
    """An If over a sum and its negative, beside a third of what was summed."""
    x, y = relay.var("x", shape=(2, 3)), relay.var("y", shape=(), dtype="bool")
    total = relay.sum(relay.add(x, relay.const(np.ones((2, 3), "float32"))), axis=1)
    third = relay.split(x, 3, axis=1)[1]
    pair = relay.Tuple([relay.If(y, total, relay.negative(total)), third])
    return tvm.IRModule.from_expr(relay.Function([x, y], pair))


class Document:
    """What TVM writes of the program, to be damaged."""

    def __init__(self, mod):
        self.text = json.loads(tvm.ir.save_json(mod))
        self.nodes = self.text["nodes"]

    def data(self, kind, **wanted):
        """Data of the first node of a type, some of whose fields refer to nodes with a content."""
        return next(
            node["data"]
            for node in self.nodes
            if node["type"] == kind
            and all(self.nodes[node["data"][k]].get("data") == v for k, v in wanted.items())
        )

    def call(self, operator):
        return self.data("ir.Call", op=operator)

    def read(self):
        return relay.load_json(json.dumps(self.text))


def another_rank(document):
    of_x = document.nodes[document.data("ir.Var", name="x")["ty"]]["data"]
    of_x["ndim"] = 3


def another_result(document):
    document.call("relax.sum")["ty"] = document.data("ir.Var", name="x")["ty"]


def another_kind_of_result(document):
    document.call("relax.sum")["ty"] = document.data("ir.Var", name="y")["ty"]


def a_field_that_the_tuple_lacks(document):
    document.data("ir.TupleGetItem")["index"] = 7


DAMAGES = [another_rank, another_result, another_kind_of_result, a_field_that_the_tuple_lacks]


@pytest.mark.parametrize("lower", [False, True])
def test_a_module_that_holds_together_is_read(lower):
    mod = relay.to_relax(program()) if lower else program()
    back = Document(mod).read()
    tvm.ir.assert_structural_equal(back, mod)


@pytest.mark.parametrize("damage", DAMAGES)
def test_types_that_do_not_follow_from_their_parts_are_refused(damage):
    document = Document(relay.to_relax(program()))
    damage(document)
    with pytest.raises(SavedModuleError):
        document.read()


def test_a_variable_that_is_used_before_it_is_bound_is_refused():
    x = relay.var("x", shape=(2,))
    mod = relay.to_relax(
        tvm.IRModule.from_expr(relay.Function([x], relay.exp(relay.negative(relay.abs(x)))))
    )
    document = Document(mod)
    document.read()
    block = document.data("relax.expr.DataflowBlock")
    document.nodes[block["bindings"]]["data"].reverse()
    with pytest.raises(SavedModuleError, match="before it is defined"):
        document.read()


def test_a_call_of_a_function_that_the_module_lacks_is_refused():
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    helper = relay.GlobalVar("helper")
    functions = {helper: relay.Function([y], relay.exp(y))}
    set_type(helper, functions[helper].ty)
    main = {relay.GlobalVar("main"): relay.Function([x], helper(x))}
    relay.load_json(tvm.ir.save_json(tvm.IRModule(main | functions)))
    alone = tvm.IRModule(main)
    with pytest.raises(SavedModuleError, match="helper"):
        relay.load_json(tvm.ir.save_json(alone))
