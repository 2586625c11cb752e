"""What the entry of a kernel still refuses, and which comparisons are left out."""

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te, tirx
from tvm.tirx.stmt import AssertStmt

from compiler import relay
from compiler.lowering.codegen.elide_argument_checks import INTERNAL_TENSORS
from compiler.lowering.kernel_passes import pipeline as tir_pipeline

SHAPE = (4, 6)


def doubled(made=()):
    """A kernel y = 2 x, and the numbers of its arguments that need no checks."""
    x = te.placeholder(SHAPE, "float32", "x")
    kernel = te.create_prim_func([x, te.compute(SHAPE, lambda *at: x(*at) * 2.0, "y")])
    kernel = kernel.with_attr("global_symbol", "doubled")
    return kernel.with_attr(INTERNAL_TENSORS, list(made)) if made else kernel


def lowered(kernel):
    lower, finalize, _ = tirx.get_tir_pipeline(tir_pipeline.PIPELINE)
    target = tvm.target.Target("llvm")
    mod = tvm.IRModule({"doubled": kernel})
    mod = lower(tirx.transform.BindTarget(target.with_host(target))(mod))
    return finalize()(mod)["doubled"]


def checks(func):
    """Conditions of all assertions."""
    found = []
    tvm_ffi.structural_walk(func.body, (AssertStmt, lambda node: found.append(str(node.condition))))
    return found


@pytest.fixture(scope="module")
def kernel():
    mod = tvm.IRModule({"doubled": doubled()})
    return tvm.compile(mod, target="llvm", tir_pipeline=tir_pipeline.PIPELINE)["doubled"]


def tensor(shape=SHAPE, dtype="float32"):
    return tvm.runtime.tensor(np.ones(shape, dtype))


def moved():
    """A tensor of the right shape that begins at a byte offset."""
    whole = tensor((8, 6))
    return whole._create_view(SHAPE, dtype="float32", relative_byte_offset=64)


def strided():
    whole = tvm.runtime.tensor(np.ones(SHAPE[::-1], "float32"))
    return tvm_ffi.from_dlpack(np.from_dlpack(whole).T)


def misaligned():
    room = np.ones(24 + 32, "float32")
    start = (-room.ctypes.data % 64) // 4 + 1
    return tvm_ffi.from_dlpack(room[start : start + 24].reshape(SHAPE), require_alignment=0)


WRONG = {
    "alignment": misaligned,
    "rank": lambda: tensor((24,)),
    "higher rank": lambda: tensor((4, 6, 1)),
    "rank 0": lambda: tensor(()),
    "dtype": lambda: tensor(dtype="int32"),
    "narrower dtype": lambda: tensor(dtype="float16"),
    "first extent": lambda: tensor((5, 6)),
    "last extent": lambda: tensor((4, 5)),
    "strides": strided,
    "byte offset": moved,
    "nothing": lambda: None,
    "number": lambda: 3,
    "string": lambda: "x",
}


@pytest.mark.parametrize("position", [0, 1])
@pytest.mark.parametrize("what", WRONG)
def test_a_kernel_refuses_an_argument_of_another(kernel, what, position):
    arguments = [tensor(), tensor()]
    arguments[position] = WRONG[what]()
    with pytest.raises((TypeError, ValueError), match=rf"argument #{position}.*\n?.*doubled\("):
        kernel(*arguments)


def test_a_kernel_takes_what_it_was_made_for(kernel):
    result = tensor()
    kernel(tensor(), result)
    np.testing.assert_array_equal(result.numpy(), np.full(SHAPE, 2, "float32"))


def test_a_kernel_refuses_another_number_of_arguments(kernel):
    with pytest.raises(TypeError, match="Expected 2 arguments"):
        kernel(tensor())


def test_comparisons_of_an_argument_are_joined_and_none_is_lost():
    found = checks(lowered(doubled()))
    assert len(found) == 2 + 2 * 4  # of the call; type, fields, shape and strides of each argument
    fields = next(check for check in found if "x_handle, 0, 4" in check)
    assert all(f"x_handle, 0, {field}," in fields for field in (1, 4, 5, 6, 7, 8, 10))
    shape = next(check for check in found if "x_shape, 0" in check)
    assert "x_shape, 1" in shape


def test_arguments_that_are_made_are_only_compared_with_the_device():
    found = checks(lowered(doubled(made=[0, 1])))
    assert len(found) == 3
    assert found[-1] == 'T.tvm_struct_get(y_handle, 0, 10, "int32") == 1'


def test_an_argument_that_is_not_made_keeps_its_checks():
    every, some = checks(lowered(doubled())), checks(lowered(doubled(made=[1])))
    of_first = [check for check in every if "x_" in check]
    assert len(of_first) == 4
    assert [check for check in some if "x_" in check] == of_first


# --- a network's own entry --------------------------------------------------------------------

REFUSED = (TypeError, ValueError, RuntimeError)  # the last by the virtual machine


@pytest.fixture(scope="module")
def library():
    """A library of two kernels, of which one reads the input and both a weight."""
    x = relay.var("x", shape=(4, 16), dtype="float32")
    weights = [relay.const(np.eye(16, dtype="float32") * factor) for factor in (2, 3)]
    hidden = relay.nn.softmax(relay.nn.dense(x, weights[0]))
    out = relay.nn.dense(hidden, weights[1])
    return relay.build(tvm.IRModule.from_expr(relay.Function([x], out)), "llvm")


def arguments(library):
    """What `main` takes: the input, then the weights."""
    return [tensor((4, 16)), *library.params.values()]


def call(library, arguments):
    return tvm.runtime.vm.VirtualMachine(library._code(), tvm.cpu())["main"](*arguments)


def test_main_computes(library):
    result = call(library, arguments(library)).numpy()
    np.testing.assert_allclose(result, np.full((4, 16), 3 / 16), rtol=1e-6)


def wrong_forms(like):
    """Tensors that are in one way not what `like` is."""
    shape, values = tuple(like.shape), np.ones(tuple(like.shape), "float32")
    whole = tvm.runtime.tensor(np.ones((2 * shape[0], *shape[1:]), "float32"))
    return {
        "shape": tvm.runtime.tensor(np.ones((shape[0] + 1, *shape[1:]), "float32")),
        "rank": tvm.runtime.tensor(values[None]),
        "dtype": tvm.runtime.tensor(values.astype("int32")),
        "strides": tvm_ffi.from_dlpack(np.asfortranarray(values)),
        "byte offset": whole._create_view(shape, dtype="float32", relative_byte_offset=64),
    }


@pytest.mark.parametrize("what", ["shape", "rank", "dtype", "strides", "byte offset"])
def test_main_refuses_inputs_and_weights_of_another(library, what):
    given = arguments(library)
    assert len(given) > 1
    for position, right in enumerate(given):
        wrong = list(given)
        wrong[position] = wrong_forms(right)[what]
        with pytest.raises(REFUSED):
            call(library, wrong)


@pytest.mark.parametrize("what", ["shape", "rank", "dtype", "strides", "byte offset"])
def test_an_entry_refuses_inputs_of_another(library, what):
    with pytest.raises(REFUSED):
        library.entry(tvm.cpu())(wrong_forms(tensor((4, 16)))[what])


def test_an_executor_refuses_an_input_that_is_strided(library):
    with pytest.raises(ValueError, match="contiguous"):
        library["default"](tvm.cpu()).set_input_zero_copy(
            "x", wrong_forms(tensor((4, 16)))["strides"]
        )
