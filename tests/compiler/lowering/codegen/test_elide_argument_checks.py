"""Which tensors of a function are known to be what kernels take."""

import pytest
import tvm
from tvm import relax, te
from tvm.ir import Call
from tvm.relax.op import builtin, memory
from tvm.tirx import IntImm

from compiler import relay
from compiler.lowering.codegen.concat_in_place import move_pointer
from compiler.lowering.codegen.elide_argument_checks import (
    INTERNAL_TENSORS,
    MarkInternalTensors,
    internal_tensors,
)
from compiler.lowering.offloaded_functions import new_global_var
from compiler.runtime.debugger.trace import MOVE_POINTER

SHAPE = (4, 8)
TENSOR = relax.TensorType(SHAPE, "float32")


def copy(shape=SHAPE, dtype="float32"):
    x = te.placeholder(shape, dtype, "x")
    return te.create_prim_func([x, te.compute(shape, lambda *at: x(*at), "y")])


class Main:
    """A function with the parameter x that calls the kernel `copy`, binding by binding."""

    def __init__(self, kernel=None):
        self.kernel, self.mover = kernel or copy(), move_pointer()
        self.copy = new_global_var("copy", self.kernel.ty)
        self.move = new_global_var(MOVE_POINTER, self.mover.ty)
        self.x = relax.Var("x", TENSOR)
        self.bindings = []

    def bind(self, value, ty=TENSOR):
        var = relax.Var(f"v{len(self.bindings)}", ty)
        if isinstance(value, Call) and value.ty.is_missing():
            relax.expr._update_type(value, ty)
        self.bindings.append(relax.VarBinding(var, value))
        return var

    def call(self, gvar, *args):
        nothing = relax.TupleType([])
        return self.bind(relax.Call(gvar, list(args), ret_ty=nothing), nothing)

    def alloc(self, device=0):
        return self.bind(builtin.alloc_tensor(relax.ShapeExpr(SHAPE), "float32", device, "global"))

    def storage(self):
        size = relax.ShapeExpr([1024])
        return self.bind(memory.alloc_storage(size, 0, "global", "float32"), relax.AnyType())

    def planned(self, storage, offset):
        shape = relax.ShapeExpr(SHAPE)
        return self.bind(memory.alloc_tensor(storage, offset, shape, "float32", 0))

    def view(self, tensor, offset):
        shape, start = relax.ShapeExpr(SHAPE), IntImm("int64", offset)
        return self.bind(memory.view(tensor, shape, relative_byte_offset=start))

    def made(self):
        """Numbers of the kernel's arguments that the function makes."""
        body = relax.SeqExpr([relax.BindingBlock(self.bindings)], self.x)
        main = relax.Function([self.x], body, TENSOR, False)
        mod = tvm.IRModule({self.copy: self.kernel, self.move: self.mover, "main": main})
        return set(internal_tensors(mod).get(self.copy, ()))


@pytest.fixture
def main():
    return Main()


def test_results_are_made_and_parameters_are_not(main):
    main.call(main.copy, main.x, main.alloc())
    assert main.made() == {1}


def test_results_of_kernels_are_made_for_the_next(main):
    first = main.alloc()
    main.call(main.copy, main.x, first)
    second = Main()
    first, last = second.alloc(), second.alloc()
    second.call(second.copy, second.bind(first), last)
    assert second.made() == {0, 1}


def test_one_call_with_a_parameter_counts(main):
    first, last = main.alloc(), main.alloc()
    main.call(main.copy, first, last)
    main.call(main.copy, main.x, last)
    assert main.made() == {1}


@pytest.mark.parametrize("tensor", ["planned", "view"])
def test_tensors_behind_others_are_made_once_their_pointer_is_moved(tensor):
    def make(main, offset):
        if tensor == "view":
            return main.view(main.alloc(), offset)
        return main.planned(main.storage(), offset)

    at_start, behind, moved = Main(), Main(), Main()
    at_start.call(at_start.copy, at_start.x, make(at_start, 0))
    assert at_start.made() == {1}
    behind.call(behind.copy, behind.x, make(behind, 64))
    assert behind.made() == set()
    var = make(moved, 64)
    moved.call(moved.move, var)
    moved.call(moved.copy, moved.x, var)
    assert moved.made() == {1}


def test_a_view_of_a_tensor_that_is_not_moved_yet_is_not_made(main):
    main.call(main.copy, main.x, main.view(main.planned(main.storage(), 64), 0))
    assert main.made() == set()


def test_a_view_of_a_parameter_is_not_made(main):
    main.call(main.copy, main.view(main.x, 0), main.alloc())
    assert main.made() == {1}


def test_tensors_on_another_device_are_not_made(main):
    main.call(main.copy, main.x, main.alloc(device=1))
    assert main.made() == set()


@pytest.mark.parametrize(
    "shape, dtype", [((8, 4), "float32"), ((4, 8), "int32"), ((32,), "float32")]
)
def test_a_kernel_of_other_tensors_keeps_its_checks(shape, dtype):
    main = Main(copy(shape, dtype))
    main.call(main.copy, main.alloc(), main.alloc())
    assert main.made() == set()


def test_a_kernel_that_is_handed_over_keeps_its_checks(main):
    made = main.alloc(), main.alloc()
    main.call(main.copy, *made)
    main.call(relax.ExternFunc("vm.builtin.call_later"), main.copy, *made)
    assert main.made() == set()


def test_kernels_are_marked(main):
    main.call(main.copy, main.x, main.alloc())
    body = relax.SeqExpr([relax.BindingBlock(main.bindings)], main.x)
    function = relax.Function([main.x], body, TENSOR, False)
    mod = MarkInternalTensors()(tvm.IRModule({main.copy: main.kernel, "main": function}))
    assert list(mod[main.copy].attrs[INTERNAL_TENSORS]) == [1]
    assert main.kernel.attrs.get(INTERNAL_TENSORS) is None


def test_a_build_marks_its_kernels(monkeypatch, compiles_every_kernel):
    from compiler.lowering.codegen import compile_kernels

    marks = {}
    lower = compile_kernels._lower

    def spy(func, symbol, target):
        marks[symbol] = list(func.attrs.get(INTERNAL_TENSORS, ()))
        return lower(func, symbol, target)

    monkeypatch.setattr(compile_kernels, "_lower", spy)
    monkeypatch.setenv("BATON_KERNEL_CACHE_BYTES", "0")
    x = relay.var("x", shape=(2, 8, 8, 8), dtype="float32")
    pooled = relay.nn.max_pool2d(relay.nn.avg_pool2d(x, (2, 2)), (2, 2))
    relay.build(tvm.IRModule.from_expr(relay.Function([x], pooled)), "llvm")
    assert {(0, 1), (1,)} <= {tuple(each) for each in marks.values()}
