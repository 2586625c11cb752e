"""FuseOps, DefuseOps, CanonicalizeCast, Inline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax

from compiler import relay
from compiler.relay import transform
from compiler.relay.type_infer import set_type
from tests.compiler.relay.transform.modules import module_of, operators_of


def kernels(mod: tvm.IRModule) -> list[list[str]]:
    """The operators of each function inside of main, in the order of evaluation."""
    found = []
    for block in mod["main"].body.blocks:
        for binding in block.bindings:
            function = binding.value
            if isinstance(function, relax.Function):
                assert int(function.attrs["Primitive"]) == 1
                inner = operators_of(tvm.IRModule({"main": function.without_attr("Primitive")}))
                found.append(sorted(inner))
    return found


def network() -> Any:
    data = relay.var("data", shape=(1, 4, 6, 6))
    result = relay.nn.conv2d(data, relay.var("w", shape=(4, 4, 3, 3)), padding=(1, 1))
    result = relay.nn.relu(relay.add(result, relay.const(1.0)))
    left, right = relay.exp(result), relay.nn.max_pool2d(result, (3, 3), padding=(1, 1))
    return relay.concatenate([left, right], axis=1)


def test_operators_fuse_into_what_dominates_them(same_values: Callable[..., None]) -> None:
    before = module_of(network())
    after = transform.FuseOps(fuse_opt_level=2)(before)
    assert kernels(after) == [
        ["add", "nn.conv2d", "nn.relu"],
        ["nn.max_pool2d"],
        ["concatenate", "exp"],
    ]
    same_values(before, after)
    back = transform.DefuseOps()(after)
    assert operators_of(back) == operators_of(before)
    same_values(before, back)


def test_level_0_makes_a_function_of_each_operator() -> None:
    after = transform.FuseOps(fuse_opt_level=0)(module_of(network()))
    assert all(len(names) == 1 for names in kernels(after))
    assert len(kernels(after)) == 6


def test_a_border_stops_fusion() -> None:
    data = relay.var("x", shape=(4,))
    body = relay.exp(relay.annotation.stop_fusion(relay.tanh(data)))
    assert kernels(transform.FuseOps(2)(module_of(body))) == [["tanh"], ["exp"]]


def test_the_context_limits_the_operators_of_a_kernel() -> None:
    body = relay.var("x", shape=(4,))
    for _ in range(6):
        body = relay.exp(body)
    with tvm.transform.PassContext(config={"relax.FuseOps.max_depth": 4}):
        after = transform.FuseOps(2)(module_of(body))
    assert len(kernels(after)) == 2


def test_each_reader_of_a_widening_cast_gets_its_own() -> None:
    wide = relay.cast(relay.var("x", shape=(4,), dtype="int8"), "float32")
    before = module_of(relay.Tuple([relay.exp(wide), relay.tanh(wide)]))
    assert operators_of(before)["cast"] == 1
    after = transform.CanonicalizeCast()(before)
    assert operators_of(after)["cast"] == 2
    assert transform.CanonicalizeCast()(after).same_as(after)


def test_inlining_goes_through_chains_and_keeps_what_nobody_called() -> None:
    def function(body: Callable[[Any], Any], inline: bool = True) -> relax.Function:
        x = relay.var("x", shape=(4,))
        made = relay.Function([x], body(x))
        return made.with_attr("Inline", 1) if inline else made

    names = {name: tvm.ir.GlobalVar(name) for name in ("leaf", "middle", "lonely")}
    functions = {names["leaf"]: function(relay.exp), names["lonely"]: function(relay.tanh)}
    for gvar, made in functions.items():
        set_type(gvar, made.ty)
    middle = function(lambda x: relay.add(relay.Call(names["leaf"], [x]), x))
    set_type(names["middle"], middle.ty)
    functions[names["middle"]] = middle
    main = function(lambda x: relay.Call(names["middle"], [x]), inline=False)
    mod = tvm.IRModule({**functions, tvm.ir.GlobalVar("main"): main})
    after = transform.Inline()(mod)
    assert sorted(str(gvar.name_hint) for gvar in after.get_global_vars()) == ["lonely", "main"]
    only = tvm.IRModule({"main": after["main"]})
    assert operators_of(only) == {"exp": 1, "add": 1}
