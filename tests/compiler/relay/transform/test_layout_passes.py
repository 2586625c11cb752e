"""ConvertLayout and AlterOpLayout: what changes layout, what follows, and that results stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tvm
from tvm import relax

from compiler import relay
from compiler.errors import RelayError, UnsupportedRelayOperatorError
from compiler.relay import transform
from compiler.relay.op.layout_string import Layout, like, without_blocks_of_one
from compiler.relay.testing.temp_op_attr import TempOpAttr
from tests.compiler.relay.transform.modules import module_of, operators_of

NHWC = {"nn.conv2d": ["NHWC", "default"]}


def conv(data: Any, channels: int = 8, **options: Any) -> Any:
    weight = relay.var(f"w{channels}", shape=(channels, data.ty.shape.values[1], 3, 3))
    return relay.nn.conv2d(data, weight, padding=(1, 1), **options)


def picture(channels: int = 4) -> Any:
    return relay.var("data", shape=(1, channels, 6, 6))


def test_layouts_are_read_and_transformed_as_relay_does() -> None:
    blocked = Layout("NCHW16c")
    assert str(blocked) == "NCHW16c"
    assert (blocked.rank, len(blocked), blocked.factor("C")) == (4, 5, 16)
    assert str(like(Layout("CHW"), Layout("NCHW"), blocked)) == "NCHW16c"
    assert like(Layout("NC4c"), Layout("NCHW"), blocked) is None
    assert str(without_blocks_of_one(blocked, Layout("NCHW"), [1, 1, 6, 6])) == "NCHW1c"
    with pytest.raises(RelayError, match="not a layout"):
        Layout("NHW16c")


TAILS: dict[str, Callable[[Any], Any]] = {
    "pool": lambda y: relay.nn.max_pool2d(relay.nn.relu(y), (2, 2), (2, 2)),
    "add": lambda y: relay.add(y, relay.var("b", shape=(8, 1, 1))),
    "bias": lambda y: relay.nn.bias_add(y, relay.var("b", shape=(8,))),
    "concat": lambda y: relay.concatenate([y, relay.nn.relu(y)], axis=1),
    "mean": lambda y: relay.mean(y, axis=[2, 3]),
    "sum": lambda y: relay.sum(y, axis=[1], keepdims=True),
    "slice": lambda y: relay.strided_slice(y, begin=[0, 4], end=[1, 8], strides=[1, 1]),
    "pad": lambda y: relay.nn.pad(y, ((0, 0), (0, 0), (1, 1), (2, 0))),
    "split": lambda y: relay.split(y, 2, axis=1).astuple(),
    "transpose": lambda y: relay.transpose(y, [0, 2, 3, 1]),
    "softmax": lambda y: relay.nn.softmax(y, axis=1),
}
BLOCKED = ("add", "concat", "sum", "slice")


@pytest.mark.parametrize(
    ("name", "layouts"),
    [
        *((name, ["NHWC", "default"]) for name in TAILS),
        *((name, ["NCHW4c", "OIHW4i4o"]) for name in BLOCKED),
    ],
)
def test_what_follows_a_converted_convolution_computes_the_same(
    name: str, layouts: list[str], same_values: Callable[..., None]
) -> None:
    before = module_of(TAILS[name](conv(picture())))
    after = transform.ConvertLayout({"nn.conv2d": layouts})(before)
    operator = "nn.conv2d" if layouts[0] == "NHWC" else "nn.contrib_conv2d_NCHWc"
    assert operators_of(after)[operator] == 1
    assert operators_of(after)["layout_transform"] >= 2
    same_values(before, after)


def test_a_value_is_converted_once_to_each_layout() -> None:
    data = picture()
    both = relay.add(conv(data, 8), conv(data, 8))
    after = transform.ConvertLayout(NHWC)(module_of(both))
    assert operators_of(after) == {"layout_transform": 4, "nn.conv2d": 2, "add": 1}


def imported() -> tvm.IRModule:
    """A module of Relax's operators, as importers make it; `flip` has no form in Relay."""
    kinds = [relax.TensorType(shape, "float32") for shape in ((1, 4, 6, 6), (8, 4, 3, 3))]
    data, weight = (relax.Var(name, kind) for name, kind in zip(("data", "weight"), kinds))
    builder = relax.BlockBuilder()
    with builder.function("main", [data, weight]):
        with builder.dataflow():
            value = builder.emit(relax.op.nn.conv2d(data, weight, padding=1))
            value = builder.emit(relax.op.clip(value, 0.0, 6.0))
            value = builder.emit(relax.op.nn.max_pool2d(value, (2, 2), (2, 2)))
            out = builder.emit_output(relax.op.flip(value, 2))
        builder.emit_func_output(out)
    return builder.get()


def test_an_imported_module_is_converted(same_values: Callable[..., None]) -> None:
    before = imported()
    after = transform.ConvertLayout(NHWC)(before)
    (convolution,) = (call for call in relay_calls(after) if call.op.name.endswith("nn.conv2d"))
    assert str(convolution.attrs["data_layout"]) == "NHWC"
    same_values(before, after)
    untouched = transform.ConvertLayout({"nn.conv3d": ["NDHWC", "default"]})(before)
    tvm.ir.assert_structural_equal(untouched, before)


def test_layers_are_skipped_by_number() -> None:
    before = module_of(conv(relay.nn.relu(conv(picture(), 8)), 6))
    with transform.LayoutConfig(skip_layers=[0]):
        after = transform.ConvertLayout(NHWC)(before)
    layouts = [
        str(node.attrs["data_layout"])
        for node in relay_calls(after)
        if str(node.op.name) == "nn.conv2d"
    ]
    assert layouts == ["NCHW", "NHWC"]


def relay_calls(mod: tvm.IRModule) -> list[Any]:
    found: list[Any] = []
    relay.analysis.post_order_visit(
        mod["main"], lambda node: found.append(node) if isinstance(node, tvm.ir.Call) else None
    )
    return found


def test_layouts_that_do_not_exist_are_refused() -> None:
    with pytest.raises(UnsupportedRelayOperatorError, match=r"nn\.konv"):
        transform.ConvertLayout({"nn.konv": ["NHWC", "default"]})
    with pytest.raises(RuntimeError, match="CHWN"):
        transform.ConvertLayout({"nn.conv2d": ["CHWN", "default"]})(module_of(conv(picture())))


def test_scripts_alter_layouts_by_an_attribute(same_values: Callable[..., None]) -> None:
    def alter(attrs: Any, inputs: Any, tinfos: Any, out_type: Any) -> Any:
        assert [int(each) for each in tinfos[0].shape] == [1, 4, 6, 6]
        assert str(out_type.dtype) == "float32"
        assert attrs.data_layout == "NCHW" and attrs.get_int_tuple("strides") == (1, 1)
        layouts = {"data_layout": "NCHW4c", "kernel_layout": "OIHW4i4o"}
        return relay.nn.conv2d(*inputs, **{**attrs, **layouts})

    before = module_of(relay.nn.relu(conv(picture())))
    with TempOpAttr("nn.conv2d", "FTVMAlterOpLayout", alter):
        after = transform.AlterOpLayout()(before)
    assert operators_of(after) == {"layout_transform": 3, "nn.conv2d": 1, "nn.relu": 1}
    same_values(before, after)
    assert transform.AlterOpLayout()(before).same_as(before)
