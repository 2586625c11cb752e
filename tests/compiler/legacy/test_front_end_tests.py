"""What TVM 0.18's own tests of importers ask for."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import tvm

from compiler import legacy, relay
from compiler.errors import FrontendError


@pytest.fixture
def model():
    make, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = make.make_graph(
        [
            make.make_node("Transpose", ["x"], ["t"], perm=[1, 0]),
            make.make_node("MatMul", ["x", "t"], ["m"], name="product"),
            make.make_node("Transpose", ["m"], ["y"], perm=[1, 0]),
        ],
        "net",
        [make.make_tensor_value_info("x", kind, [2, 3])],
        [make.make_tensor_value_info("y", kind, [2, 2])],
    )
    return make.make_model(graph, opset_imports=[make.make_opsetid("", 13)], ir_version=8)


def test_modules_are_imported_and_compared_with_and_without_spans(model):
    with legacy.installed():
        with tvm.testing.disable_span_filling():
            one, _ = relay.frontend.from_onnx(model, convert_config={"use_nt_batch_matmul": False})
        with tvm.testing.enable_span_filling():
            two, _ = relay.frontend.from_onnx(model)
        tvm.ir.assert_structural_equal(one, two)
        plain = relay.to_relax(two)
        tvm.ir.assert_structural_equal(plain, relay.to_relax(one))
        x = np.ones((2, 3), "float32")
        run = relay.create_executor("vm", mod=one, device=tvm.cpu(), target="llvm").evaluate()
        np.testing.assert_allclose(run(x).numpy(), x @ x.T)


def test_a_model_is_saved_with_names_for_all_nodes(model, tmp_path):
    relay.frontend.from_onnx(model, export_node_renamed_model_path=tmp_path / "named")
    (path,) = (tmp_path / "named").iterdir()
    names = [node.name for node in onnx.load(path).graph.node]
    assert names == ["Transpose_0", "product", "Transpose_1"]
    with pytest.raises(FrontendError, match="needs the model as a ModelProto"):
        relay.frontend.from_onnx(str(path), export_node_renamed_model_path=tmp_path)


def test_extents_that_running_tells_are_equal_in_two_imports():
    make, kinds = onnx.helper, onnx.TensorProto

    def made(operator):
        graph = make.make_graph(
            [make.make_node("Tile", ["x", "n"], ["t"]), make.make_node(operator, ["t"], ["y"])],
            "net",
            [
                make.make_tensor_value_info("x", kinds.FLOAT, [2, 3]),
                make.make_tensor_value_info("n", kinds.INT64, [2]),
            ],
            [make.make_tensor_value_info("y", kinds.FLOAT, ["rows", "columns"])],
        )
        return make.make_model(graph, opset_imports=[make.make_opsetid("", 13)], ir_version=8)

    with legacy.installed():
        one, two, other = (relay.frontend.from_onnx(made(op))[0] for op in ("Abs", "Abs", "Neg"))
        tvm.ir.assert_structural_equal(one, two)
        assert tvm.ir.structural_hash(one) == tvm.ir.structural_hash(two)
        assert not tvm.ir.structural_equal(one, other)


def test_an_unknown_input_is_an_assertion_that_fails(model):
    with pytest.raises(AssertionError, match="'z', which is not an input"):
        relay.frontend.from_onnx(model, {"z": [2, 3]})


def test_documents_of_tvm_install_a_hook_for_downloads():
    with legacy.installed():
        tvm.testing.utils.install_request_hook(depth=3)


def test_what_a_test_needs_is_a_decorator_and_marks(monkeypatch):
    monkeypatch.setattr(pytest.mark, "_config", None)  # of which "cudnn" is none

    def test():
        pass

    with legacy.installed():
        requires = tvm.testing.requires_cudnn
        cases = (pytest.param(1, marks=[*requires()]), pytest.param(1, marks=requires.marks()))
        assert requires(test) is requires()(test) is test
    for marks in (*(case.marks for case in cases), test.pytestmark):
        assert {mark.name for mark in marks} == {"cudnn", "skipif"}
