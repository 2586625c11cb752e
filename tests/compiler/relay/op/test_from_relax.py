"""Every operator's way to Relax and back, on the calls that real Relay recorded."""

from __future__ import annotations

import collections

import pytest
import tvm
import tvm_ffi
from tvm import relax

from compiler import relay
from compiler.errors import BatonError
from compiler.relay import dialect
from compiler.relay.nested_expressions import nested, post_order
from compiler.relay.op import registry
from compiler.relay.relay_to_relax import function_of
from tests.compiler.relay.oracle import programs

SIMPLER = {
    "collapse_sum_like": "collapse_sum_to",
    "full_like": "full",
    "nn.batch_flatten": "reshape",
    "nn.adaptive_avg_pool3d": "nn.global_avg_pool3d",
    "nn.upsampling": "image.resize2d",
    "nn.upsampling3d": "image.resize3d",
    "squeeze": "reshape",
}
"""Operators for which another one stands that says the same; what comes back is that one."""

CONSTANT = {"ones", "ones_like", "zeros", "zeros_like"}
"""Folded on the way: nothing but a constant comes back."""

IN_PARTS = {
    "argmax": "the kernel counts in int64",
    "argmin": "the kernel counts in int64",
    "meshgrid": "Relax has a result for each tensor",
    "nn.conv2d_transpose": "the recorded one is NHWC, which Relax has not",
    "nn.sparse_transpose": "computed in steps",
    "sparse_fill_empty_rows": "computed in steps",
    "stack": "Relax's reshapes and concatenates on the way",
    "strided_set": "computed in steps",
    "tile": "repeats that a tensor holds",
    "vision.all_class_non_max_suppression": "computed in steps",
    "vision.get_valid_counts": "computed in steps",
    "vision.multibox_transform_loc": "computed in steps",
    "vision.non_max_suppression": "computed in steps",
    "vision.regular_non_max_suppression": "computed in steps",
}
"""Operators that become several calls, which nothing puts together again."""

KERNEL = {
    *("adv_index", "image.affine_grid", "nn.avg_pool2d_grad", "nn.deformable_conv2d"),
    *("nn.max_pool2d_grad", "nn.mirror_pad", "one_hot", "qnn.simulated_dequantize"),
    *("qnn.simulated_quantize", "sparse_to_dense", "trilu"),
}
"""One kernel whose attributes are not those of the operator: it stays a kernel."""

RESPELLED = {
    *("cumprod", "ndarray_size", "nn.adaptive_avg_pool3d", "nn.cross_entropy", "nn.sparse_dense"),
    *("nn.contrib_conv2d_winograd_weight_transform", "nn.contrib_conv3d_winograd_weight_transform"),
    *("nn.cross_entropy_with_logits", "qnn.hardswish", "sparse_reshape", "transpose"),
    *("vision.all_class_non_max_suppression", "vision.regular_non_max_suppression"),
}
"""Lowered once more they are spelled otherwise: axes by number, dtypes by name, products flat."""

CALLS: dict[str, list[relax.Call]] = collections.defaultdict(list)


def alone(call: relax.Call) -> tvm.IRModule:
    """A module of one call; its constants stay constants."""
    params: list[relax.Var] = []

    def leaf(expr: relax.Expr) -> relax.Expr:
        if isinstance(expr, tvm.ir.GenericConst):
            return expr
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([leaf(field) for field in expr.fields])
        params.append(relax.Var(f"x{len(params)}", expr.ty))
        return params[-1]

    args = [leaf(arg) for arg in call.args]
    made = dialect.call(dialect.relay_name(call), args, dialect.attributes(call))
    return tvm.IRModule({"main": function_of(params, made)})


def recorded() -> dict[str, list[relax.Call]]:
    """Different calls by operator."""
    seen = set()
    for case in programs() if not CALLS else ():
        try:
            functions = relay.fromtext(case["text"], case["id"]).functions.values()
        except BatonError:
            continue  # a program that can't be read here is another test's
        for function in functions:
            for node in post_order(nested(function)) if hasattr(function, "body") else ():
                if dialect.is_relay(node):
                    key = (node.op.name, str(node.attrs), *(str(arg.ty) for arg in node.args))
                    if key not in seen:
                        CALLS[str(node.op.name)].append(node)
                    seen.add(key)
    return CALLS


def names(mod: tvm.IRModule) -> list[str]:
    nodes = post_order(nested(mod["main"]))
    return [str(node.op.name) for node in nodes if isinstance(node, relax.Call)]


def same(left: tvm.IRModule, right: tvm.IRModule) -> bool:
    bodies = [function_of(mod["main"].params, nested(mod["main"])) for mod in (left, right)]
    return bool(tvm_ffi.structural_equal(*bodies, map_free_vars=True))


def test_operators_of_one_call_come_back_as_themselves() -> None:
    wrong = {}
    found = recorded()
    assert len(found) > 220
    for name, calls in found.items():
        if registry.lookup(name).how == "composed" or name.startswith("dyn."):
            continue
        results = [names(relay.from_relax(relay.to_relax(alone(call)))) for call in calls[:6]]
        wanted = [SIMPLER.get(name, name)] if name not in CONSTANT else []
        listed = name in IN_PARTS or name in KERNEL
        if (wanted in results) == listed:
            wrong[name] = results
    assert not wrong


def test_attributes_come_back() -> None:
    """Structurally the same call, where the recorded one is spelled as the way back spells it."""
    exact = {
        name
        for name, calls in recorded().items()
        if any(same(mod, relay.from_relax(relay.to_relax(mod))) for mod in map(alone, calls[:6]))
    }
    assert len(exact) >= 105
    assert exact >= {"nn.conv2d", "nn.batch_norm", "nn.max_pool2d", "concatenate", "round"}


@pytest.mark.parametrize("respelled", [False, True])
def test_what_comes_back_is_the_same_in_relax(respelled: bool) -> None:
    wrong = []
    for name, calls in recorded().items():
        if (name in RESPELLED) != respelled:
            continue
        alike = []
        for call in calls[:6]:
            lowered = relay.to_relax(alone(call))
            alike.append(same(lowered, relay.to_relax(relay.from_relax(lowered))))
        if all(alike) == respelled:
            wrong.append(name)
    assert not wrong
