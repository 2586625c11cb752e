"""Tests of `from_onnx`: what comes out, and what it says about bad input."""

from __future__ import annotations

import contextlib

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper
from tvm import relax

from compiler import errors
from compiler.relay.frontend import from_onnx
from compiler.relay.relax_to_relay import to_relax

NODE = helper.make_node


@pytest.fixture
def dense(model, rng):
    """A model with a weight, a bias and a shape."""
    weights = {
        "fc.weight": rng.normal(size=(5, 4)).astype("float32"),
        "fc.bias": rng.normal(size=5).astype("float32"),
        "shape": np.array([-1, 5], "int64"),
    }
    nodes = [
        NODE("Gemm", ["input.1", "fc.weight", "fc.bias"], ["y"], "fc", transB=1),
        NODE("Reshape", ["y", "shape"], ["out"], "flat"),
    ]
    return model(nodes, {"input.1": (3, 4)}, ["out"], weights)


# ---------------------------------------------------------------- what comes out


def test_frozen_weights_are_constants_and_inputs_keep_their_names(dense, operators, agrees, rng):
    mod, params = from_onnx(dense)
    assert params == {}
    assert [param.name for param in mod["main"].params] == ["input.1"]
    assert operators(mod) == {"nn.dense": 1, "nn.bias_add": 1, "reshape": 1}
    agrees(dense, {"input.1": rng.normal(size=(3, 4)).astype("float32")})


def test_unfrozen_weights_are_trailing_parameters_with_their_values(dense, agrees, rng):
    mod, params = from_onnx(dense, freeze_params=False)
    names = [param.name for param in mod["main"].params]
    assert names == ["input.1", "fc.weight", "fc.bias"]
    assert list(params) == names[1:]
    np.testing.assert_array_equal(
        params["fc.bias"].numpy(), onnx.numpy_helper.to_array(dense.graph.initializer[1])
    )
    data = rng.normal(size=(3, 4)).astype("float32")
    agrees(dense, {"input.1": data}, freeze_params=False)


def test_main_is_one_dataflow_block(dense):
    mod, _ = from_onnx(dense)
    (block,) = mod["main"].body.blocks
    assert isinstance(block, relax.DataflowBlock)
    assert [var.name_hint for var in mod.get_global_vars()] == ["main"]


def test_a_path_bytes_and_a_message_are_the_same_model(dense, tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(dense, path)
    expected = from_onnx(dense)[0]
    for source in (path, str(path), dense.SerializeToString()):
        tvm.ir.assert_structural_equal(from_onnx(source)[0], expected)


def test_the_given_message_is_not_changed(dense):
    before = dense.SerializeToString()
    from_onnx(dense, freeze_params=False)
    assert dense.SerializeToString() == before


def test_initializers_that_are_also_inputs_are_weights(dense):
    dense.graph.input.append(helper.make_tensor_value_info("fc.bias", TensorProto.FLOAT, [5]))
    mod, _ = from_onnx(dense)
    assert [param.name for param in mod["main"].params] == ["input.1"]


def test_open_dimensions_come_from_the_shape_argument(model):
    proto = model([NODE("Relu", ["x"], ["y"])], {"x": ("batch", 3, None)}, ["y"])
    mod, _ = from_onnx(proto, shape={"x": (2, 3, 7)})
    assert [int(e) for e in mod["main"].ret_ty.shape.values] == [2, 3, 7]


def test_the_dtype_argument_overrides_the_models(model):
    proto = model([NODE("Relu", ["x"], ["y"])], {"x": (2,)}, ["y"])
    mod, _ = from_onnx(proto, dtype={"x": "float16"})
    assert str(mod["main"].ret_ty.dtype) == "float16"
    assert str(from_onnx(proto, dtype="float16")[0]["main"].ret_ty.dtype) == "float32"


def test_shape_arithmetic_leaves_no_trace(model, operators, agrees, rng):
    """What PyTorch exports for `x.view(x.shape[0], -1, x.shape[1] // 2)`."""
    nodes = [
        NODE("Shape", ["x"], ["s"]),
        NODE("Gather", ["s", "zero"], ["n"], axis=0),
        NODE("Shape", ["x"], ["t"], start=1, end=2),
        NODE("Squeeze", ["t"], ["c"]),
        NODE("Div", ["c", "two"], ["half"]),
        NODE("Cast", ["half"], ["half64"], to=TensorProto.INT64),
        NODE("Unsqueeze", ["n", "axis"], ["n1"]),
        NODE("Unsqueeze", ["half64", "axis"], ["h1"]),
        NODE("Concat", ["n1", "minus", "h1"], ["target"], axis=0),
        NODE("ConstantOfShape", ["target3"], ["ones"]),
        NODE("Reshape", ["x", "target"], ["r"]),
        NODE("Add", ["r", "ones"], ["y"]),
    ]
    weights = {
        "zero": np.array(0),
        "two": np.array(2),
        "axis": np.array([0]),
        "minus": np.array([-1]),
        "target3": np.array([1, 1, 1]),
    }
    proto = model(nodes, {"x": (2, 6, 5)}, ["y"], weights)
    mod = agrees(proto, {"x": rng.normal(size=(2, 6, 5)).astype("float32")})
    assert set(operators(mod)) == {"reshape", "add"}


def test_a_spelled_out_layer_norm_and_gelu_are_recognized(model, operators, agrees, rng):
    """What PyTorch exports at opset 13 for `gelu(layer_norm(x))`."""
    nodes = [
        NODE("ReduceMean", ["x"], ["m"], axes=[-1]),
        NODE("Sub", ["x", "m"], ["d"]),
        NODE("Pow", ["d", "two"], ["p"]),
        NODE("ReduceMean", ["p"], ["v"], axes=[-1]),
        NODE("Add", ["v", "eps"], ["e"]),
        NODE("Sqrt", ["e"], ["s"]),
        NODE("Div", ["d", "s"], ["n"]),
        NODE("Mul", ["n", "gamma"], ["g"]),
        NODE("Add", ["g", "beta"], ["l"]),
        NODE("Div", ["l", "root"], ["r"]),
        NODE("Erf", ["r"], ["f"]),
        NODE("Add", ["f", "one"], ["o"]),
        NODE("Mul", ["l", "o"], ["t"]),
        NODE("Mul", ["t", "half"], ["y"]),
    ]
    scalars = {"two": 2, "eps": 1e-5, "root": 1.4142135381698608, "one": 1, "half": 0.5}
    weights = {name: np.array(value, "float32") for name, value in scalars.items()}
    weights["gamma"], weights["beta"] = rng.normal(size=(2, 8)).astype("float32")
    proto = model(nodes, {"x": (2, 8)}, ["y"], weights, opset=13)
    data = {"x": rng.normal(size=(2, 8)).astype("float32")}
    for freeze in (True, False):
        mod = agrees(proto, data, freeze_params=freeze)
        spelled = {"nn.layer_norm": 1, "divide": 1, "erf": 1, "add": 1, "multiply": 2}
        assert operators(mod) == spelled
        assert operators(to_relax(mod)) == {"nn.layer_norm": 1, "nn.gelu": 1}


def test_functions_of_the_model_are_inlined(model, agrees, rng):
    proto = model(
        [NODE("Scaled", ["x"], ["y"], "s", domain="mine", factor=3.0)],
        {"x": (4,)},
        ["y"],
        domains={"mine": 1},
    )
    body = [NODE("Constant", [], ["k"]), NODE("Mul", ["a", "k"], ["b"])]
    reference = onnx.AttributeProto(
        name="value_float", ref_attr_name="factor", type=onnx.AttributeProto.FLOAT
    )
    body[0].attribute.append(reference)
    proto.functions.append(
        helper.make_function(
            "mine", "Scaled", ["a"], ["b"], body, [helper.make_opsetid("", 17)], ["factor"]
        )
    )
    agrees(proto, {"x": rng.normal(size=4).astype("float32")})


def test_weights_in_other_files_are_read_from_the_models_folder(dense, tmp_path, run, rng):
    onnx.save(dense, tmp_path / "whole.onnx")
    onnx.save(
        dense,
        tmp_path / "split.onnx",
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    data = {"input.1": rng.normal(size=(3, 4)).astype("float32")}
    results = [run(*from_onnx(tmp_path / name), data)[0] for name in ("whole.onnx", "split.onnx")]
    np.testing.assert_array_equal(*results)


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize("data", [b"", b"not a model at all", b"\x00" * 64, b"\x7fELF" * 20])
def test_a_file_that_is_no_onnx_is_refused(data, tmp_path):
    path = tmp_path / "bad.onnx"
    path.write_bytes(data)
    with pytest.raises(errors.FrontendError, match=r"bad\.onnx.*not an ONNX model"):
        from_onnx(path)
    with pytest.raises(errors.FrontendError, match="not an ONNX model"):
        from_onnx(data)


def test_a_truncated_file_is_refused_wherever_it_ends(dense):
    data = dense.SerializeToString()
    for length in range(1, len(data) - 1, 7):
        with pytest.raises(errors.FrontendError):
            from_onnx(data[:length])


def test_a_corrupted_file_is_imported_or_refused(dense, rng):
    data = dense.SerializeToString()
    for _ in range(150):
        damaged = bytearray(data)
        for position in rng.integers(0, len(data), 3):
            damaged[position] = rng.integers(0, 256)
        with contextlib.suppress(errors.FrontendError):
            from_onnx(bytes(damaged))


def test_a_missing_file_and_a_wrong_type_are_refused(tmp_path):
    with pytest.raises(errors.FrontendError, match="nowhere"):
        from_onnx(tmp_path / "nowhere.onnx")
    with pytest.raises(errors.FrontendError, match="not list"):
        from_onnx([1, 2])


def test_an_unsupported_operator_is_named_with_its_domain_and_node(model):
    nodes = [NODE("Relu", ["x"], ["r"]), NODE("Frobnicate", ["r"], ["y"], "head", domain="acme")]
    proto = model(nodes, {"x": (2,)}, ["y"], domains={"acme": 3})
    with pytest.raises(errors.UnsupportedOperatorError, match=r"Frobnicate.*acme.*'head'"):
        from_onnx(proto)


def test_an_unsupported_form_of_an_operator_is_named_with_its_node(model):
    proto = model(
        [NODE("Reshape", ["x", "s"], ["y"], "view")],
        {"x": (4,), "s": (2,)},
        ["y"],
        dtypes={"s": TensorProto.INT64},
    )
    proto.graph.node[0].op_type = "OneHot"
    proto.graph.node[0].input.append("x")
    with pytest.raises(errors.UnsupportedOperatorError, match=r"OneHot.*'view'"):
        from_onnx(proto)


def test_a_shape_of_what_is_not_an_input_is_refused(model):
    proto = model([NODE("Relu", ["image"], ["y"])], {"image": ("batch", 3)}, ["y"])
    with pytest.raises(errors.FrontendError, match=r"'other'.*'image'"):
        from_onnx(proto, shape={"other": (1, 3)})


@pytest.mark.parametrize("extent", [-1, 2.5, True, ""])
def test_what_is_not_an_extent_is_refused(model, extent):
    proto = model([NODE("Relu", ["image"], ["y"])], {"image": ("batch", 3)}, ["y"])
    with pytest.raises(errors.UnknownShapeError, match=r"'image'.*a number, a name, or None"):
        from_onnx(proto, shape={"image": (extent, 3)})


def test_an_input_without_a_rank_is_named(model):
    proto = model([NODE("Relu", ["image"], ["y"])], {"image": None}, ["y"])
    with pytest.raises(errors.UnknownShapeError, match=r"'image'.*not even a rank"):
        from_onnx(proto)


def test_a_condition_that_is_declared_as_a_scalar_may_have_one_element(model, run):
    then, other = (
        helper.make_graph(
            [helper.make_node(operator, ["x"], ["z"])],
            operator,
            [],
            [helper.make_tensor_value_info("z", TensorProto.FLOAT, [2])],
        )
        for operator in ("Neg", "Abs")
    )
    node = NODE("If", ["c"], ["y"], then_branch=then, else_branch=other)
    proto = model([node], {"c": (), "x": (2,)}, ["y"], dtypes={"c": TensorProto.BOOL})
    mod, params = from_onnx(proto, shape={"c": (1,)})
    x = np.array([1, -2], "float32")
    for taken, expected in ((True, -x), (False, abs(x))):
        (got,) = run(mod, params, {"c": np.array([taken]), "x": x})
        np.testing.assert_array_equal(got, expected)


def test_upsampling_is_asymmetric_in_models_that_say_a_later_operator_set(model, run):
    node = NODE("Upsample", ["x", "s"], ["y"], mode="linear")
    scales = {"s": np.array([1, 2], "float32")}
    mod, params = from_onnx(model([node], {"x": (1, 3)}, ["y"], scales, opset=17))
    (got,) = run(mod, params, {"x": np.array([[0, 2, 6]], "float32")})
    np.testing.assert_array_equal(got, [[0, 1, 2, 4, 6, 6]])


def test_a_shape_of_the_wrong_rank_is_refused(model):
    proto = model([NODE("Relu", ["x"], ["y"])], {"x": ("n", 3)}, ["y"])
    with pytest.raises(errors.FrontendError, match=r"'x' 3 dimensions"):
        from_onnx(proto, shape={"x": (1, 2, 3)})


@pytest.mark.parametrize("opset", [0, 99])
def test_an_unknown_opset_is_refused(model, opset):
    proto = model([NODE("Relu", ["x"], ["y"])], {"x": (2,)}, ["y"])
    with pytest.raises(errors.FrontendError, match=f"opset {opset} is not supported"):
        from_onnx(proto, opset=opset)


def test_a_damaged_weight_is_named(dense):
    dense.graph.initializer[0].raw_data = dense.graph.initializer[0].raw_data[:-4]
    with pytest.raises(errors.FrontendError, match=r"fc\.weight.*damaged"):
        from_onnx(dense)


def test_a_large_damaged_weight_in_a_file_is_named(model, tmp_path):
    weights = {"w": np.zeros((64, 64), "float32")}
    proto = model([NODE("MatMul", ["x", "w"], ["y"])], {"x": (1, 64)}, ["y"], weights)
    proto.graph.initializer[0].raw_data = b"\0" * 5000
    onnx.save(proto, tmp_path / "m.onnx")
    with pytest.raises(errors.FrontendError, match=r"'w'.*5000 bytes, not 16384"):
        from_onnx(tmp_path / "m.onnx")


def test_a_tensor_that_nothing_makes_is_named(model):
    proto = model([NODE("Add", ["x", "ghost"], ["y"], "sum")], {"x": (2,)}, ["y"])
    with pytest.raises(errors.FrontendError, match=r"'sum'.*'ghost'"):
        from_onnx(proto)


def test_external_weights_outside_the_folder_are_refused(dense, tmp_path):
    folder = tmp_path / "inner"
    folder.mkdir()
    onnx.save(
        dense,
        folder / "m.onnx",
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    (folder / "weights.bin").rename(tmp_path / "weights.bin")
    proto = onnx.load(folder / "m.onnx", load_external_data=False)
    for tensor in proto.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = "../weights.bin"
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(errors.FrontendError, match="external weights"):
        from_onnx(folder / "m.onnx")
    with pytest.raises(errors.FrontendError, match="pass the path"):
        from_onnx(proto)


def test_an_import_does_not_change_tvms_own_importer(dense):
    from tvm.relax.frontend.onnx import onnx_frontend

    before = onnx_frontend._get_convert_map()
    from_onnx(dense)
    assert onnx_frontend._get_convert_map() == before
