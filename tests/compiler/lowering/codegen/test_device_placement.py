"""One executable on several devices and for several CPUs."""

import re

import numpy as np
import pytest
import tvm
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.target import Target

from compiler.errors import BuildError
from compiler.lowering.codegen import device_placement
from compiler.lowering.codegen.plan_devices import PlanDevices
from schedules.cuda import rules
from schedules.x86.machine.host import host_name

HOST_CPU = host_name()
CPU = Target({"kind": "llvm", "mcpu": HOST_CPU})
BASE_CPU = Target({"kind": "llvm", "mcpu": "x86-64"})
CUDA = Target({"kind": "cuda", "arch": "sm_90", "host": {"kind": "llvm", "mcpu": HOST_CPU}})


@I.ir_module
class Network:
    @R.function(private=True)
    def sub(x: R.Tensor((4, 32), "float32"), w: R.Tensor((32, 16), "float32")):
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.nn.relu(a)
            R.output(b)
        return b

    @R.function
    def main(
        x: R.Tensor((4, 32), "float32"),
        w: R.Tensor((32, 16), "float32"),
        v: R.Tensor((16,), "float32"),
    ):
        R.func_attr({"num_input": 1})
        cls = Network
        with R.dataflow():
            a = R.exp(x)
            b = cls.sub(a, w)
            c = R.add(b, v)
            d = R.tanh(c)
            R.output(d)
        return d


@I.ir_module
class Chain:
    """Values of one size on both devices, each needed for one step only."""

    @R.function(private=True)
    def sub(x: R.Tensor((4, 32), "float32")):
        with R.dataflow():
            a = R.cumsum(x, 1)
            b = R.nn.softmax(a)
            c = R.nn.log_softmax(b)
            R.output(c)
        return c

    @R.function
    def main(x: R.Tensor((4, 32), "float32")):
        cls = Chain
        with R.dataflow():
            a = R.nn.relu(x)
            b = R.max(a, axis=1, keepdims=True)
            c = R.subtract(a, b)
            d = cls.sub(c)
            e = R.max(d, axis=1, keepdims=True)
            f = R.subtract(d, e)
            R.output(f)
        return f


def lower(mod, targets):
    """Legalize, fuse, schedule each function's kernels for its target, and inline."""
    mod = device_placement.dispatch_sorts(mod, targets)
    mod = tvm.transform.Sequential(
        [
            relax.transform.LegalizeOps(),
            relax.transform.AnnotateTIROpPattern(),
            relax.transform.FuseOps(),
            relax.transform.FuseTIR(),
        ]
    )(mod)
    functions = dict(mod.functions_items())
    for name, target in targets.items():

        def schedule(expr, target=target):
            if isinstance(expr, relax.Call) and getattr(expr.op, "name", "") == "relax.call_tir":
                functions[expr.args[0]] = _scheduled(mod[expr.args[0]], target)

        relax.analysis.post_order_visit(mod[name], schedule)
    return relax.transform.InlinePrivateFunctions()(tvm.IRModule(functions))


def _scheduled(func, target):
    if target.kind.name == "cuda":
        tries = (rule.apply(func, target, False) for rule in rules())
        func = next(found for found in tries if found is not None).mod["main"]
    return func.with_attr("target", target)


def link(mod, target):
    finish = tvm.transform.Sequential(
        [
            relax.transform.ToNonDataflow(),
            relax.transform.RemovePurityChecking(),
            relax.transform.CallTIRRewrite(),
            PlanDevices(),
            relax.transform.LowerAllocTensor(),
            relax.transform.KillAfterLastUse(),
            relax.transform.LowerRuntimeBuiltin(),
            relax.transform.ComputePrimValue(),
            relax.transform.VMShapeLower(),
            relax.transform.AttachGlobalSymbol(),
            device_placement.separate_cpus(target),
        ]
    )
    return relax.build(mod, target, relax_pipeline=finish)


def build(mod, main, sub):
    targets = {"main": main, "sub": sub}
    placed = device_placement.place(lower(mod, targets), main, targets)
    return placed, link(placed, main)


def calls(executable):
    """(function, operands, result) of each instruction of the VM code."""
    pattern = re.compile(r"^\s+call\s+(\S+)\s+in: (.*?)\s*dst: (\S+)", re.MULTILINE)
    return [
        (name, operands.split(", "), result)
        for name, operands, result in pattern.findall(executable.as_text())
    ]


def kernel_names(executable):
    return [name for name, _, _ in calls(executable) if not name.startswith("vm.")]


@pytest.mark.parametrize(("main", "sub"), [(CPU, CUDA), (CUDA, CPU)])
def test_values_are_copied_where_a_function_of_another_device_begins_and_ends(main, sub):
    _, executable = build(Network, main, sub)
    steps = [
        name
        for name, _, _ in calls(executable)
        if name == "vm.builtin.to_device" or not name.startswith("vm.")
    ]
    assert steps == [
        "tir_exp",
        "vm.builtin.to_device",
        "fused_matmul_relu",
        "vm.builtin.to_device",
        "fused_add_tir_tanh",
    ]
    cpu, cuda = tvm.cpu().dlpack_device_type(), tvm.cuda().dlpack_device_type()
    copies = [operands[1] for name, operands, _ in calls(executable) if name.endswith("to_device")]
    there, back = (cuda, cpu) if main is CPU else (cpu, cuda)
    assert copies == [f"i{there}", f"i{back}"]


def test_each_kernel_writes_memory_of_its_own_device():
    """TVM's memory planner, which knows no devices, would share it between them."""
    placed, executable = build(Chain, CPU, CUDA)
    on_cuda = {
        gvar.name_hint
        for gvar, func in placed.functions_items()
        if isinstance(func, tirx.PrimFunc) and func.attrs["target"].kind.name == "cuda"
    }
    storage_device, tensor_device = {}, {}
    written = 0
    for name, operands, result in calls(executable):
        if name == "vm.builtin.alloc_storage":
            storage_device[result] = operands[2]
        elif name == "vm.builtin.alloc_tensor":
            tensor_device[result] = storage_device[operands[0]]
        elif name == "vm.builtin.reshape":
            tensor_device[result] = tensor_device.get(operands[0])
        elif not name.startswith("vm."):
            assert tensor_device[operands[-1]] == ("i1" if name in on_cuda else "i0"), name
            written += 1
    assert written == len(kernel_names(executable)) >= 6


def test_a_weight_that_only_the_other_device_reads_is_expected_there():
    placed, executable = build(Network, CPU, CUDA)
    assert device_placement.weight_devices(placed) == (1, 0)
    assert sum(name == "vm.builtin.to_device" for name in _names(executable)) == 2


def _names(executable):
    return [name for name, _, _ in calls(executable)]


def test_a_weight_that_both_devices_read_stays_with_main_and_is_copied():
    x = relax.Var("x", relax.TensorType((4, 4), "float32"))
    w = relax.Var("w", relax.TensorType((4, 4), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, w], attrs={"num_input": 1}):
        with builder.dataflow():
            y = builder.emit(relax.op.add(x, w))
            out = builder.emit_output(relax.op.nn.relu(builder.emit(relax.op.multiply(y, w))))
        builder.emit_func_output(out)
    mod = relax.transform.LegalizeOps()(builder.get())
    functions = {
        gvar: func.with_attr("target", CUDA if gvar.name_hint == "multiply" else CPU)
        if isinstance(func, tirx.PrimFunc)
        else func
        for gvar, func in mod.functions_items()
    }
    placed = device_placement.place(tvm.IRModule(functions), CPU, {"main": CPU})
    assert device_placement.weight_devices(placed) == (0,)
    assert placed["main"].script().count("R.to_vdevice(") == 3


def test_several_results_and_results_of_the_other_device_come_back_to_main():
    x = relax.Var("x", relax.TensorType((4, 6), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x], attrs={"num_input": 1}):
        with builder.dataflow():
            parts = builder.emit(relax.op.split(x, 2, axis=1))
            first = builder.emit(relax.TupleGetItem(parts, 0))
            second = builder.emit(relax.op.nn.relu(builder.emit(relax.TupleGetItem(parts, 1))))
            out = builder.emit_output(relax.Tuple([first, second]))
        builder.emit_func_output(out)
    mod = relax.transform.LegalizeOps()(builder.get())
    functions = {
        gvar: func.with_attr("target", CUDA if gvar.name_hint == "split" else CPU)
        if isinstance(func, tirx.PrimFunc)
        else func
        for gvar, func in mod.functions_items()
    }
    placed = device_placement.place(tvm.IRModule(functions), CPU, {"main": CPU})
    kinds_of_results = {
        str(field.vdevice.target.kind.name) for field in placed["main"].ret_ty.fields
    }
    assert kinds_of_results == {"llvm"}


def test_on_one_device_nothing_changes():
    targets = {"main": CPU, "sub": BASE_CPU}
    lowered = lower(Network, targets)
    assert device_placement.place(lowered, CPU, targets).same_as(lowered)
    assert device_placement.kinds(targets) == ("cpu",)
    assert device_placement.weight_devices(lowered) == (0, 0)


def test_the_device_of_main_comes_first():
    assert device_placement.kinds({"sub": CPU, "main": CUDA}) == ("cuda", "cpu")


def test_the_callers_module_is_unchanged():
    targets = {"main": CPU, "sub": CUDA}
    lowered = lower(Network, targets)
    before = lowered.script()
    device_placement.place(lowered, CPU, targets)
    assert lowered.script() == before


def test_a_call_of_a_function_that_was_not_inlined_is_a_build_error():
    targets = {"main": CPU, "sub": CUDA}
    with pytest.raises(BuildError, match="subgraphs inlined"):
        device_placement.place(Network, CPU, targets)


def test_scans_become_kernels_for_the_target_of_their_function():
    on_gpu = device_placement.dispatch_sorts(Chain, {"main": CPU, "sub": CUDA})
    on_cpu = device_placement.dispatch_sorts(Chain, {"main": CUDA, "sub": CPU})
    for mod in (on_gpu, on_cpu):
        assert "R.cumsum" not in mod["sub"].script()
    assert "threadIdx" in on_gpu.script()
    assert "threadIdx" not in on_cpu.script()


@pytest.mark.parametrize(("main", "sub"), [(CPU, BASE_CPU), (BASE_CPU, CPU)])
def test_each_cpus_kernels_use_its_own_instructions_and_run(main, sub, tmp_path):
    _, executable = build(Network, main, sub)
    cpu_of = {}
    for library in executable.mod.imports:
        text = library.inspect_source("ll")
        (cpu,) = set(re.findall(r'"target-cpu"="([^"]*)"', text))
        for kernel in ("tir_exp", "fused_matmul_relu", "fused_add_tir_tanh"):
            if f"@__tvm_ffi_{kernel}(" in text:
                cpu_of[kernel] = cpu
    own, other = str(main.attrs["mcpu"]), str(sub.attrs["mcpu"])
    assert cpu_of == {"tir_exp": own, "fused_matmul_relu": other, "fused_add_tir_tanh": own}

    rng = np.random.default_rng(0)
    x, w, v = (rng.standard_normal(s).astype("float32") for s in ((4, 32), (32, 16), (16,)))
    expected = np.tanh(np.maximum(np.exp(x.astype("f8")) @ w, 0) + v)
    executable.export_library(str(tmp_path / f"{own}.so"))
    loaded = tvm.runtime.load_module(str(tmp_path / f"{own}.so"))
    for module in (executable, loaded):
        run = relax.VirtualMachine(module, tvm.cpu())["main"]
        found = run(*[tvm.runtime.tensor(value) for value in (x, w, v)]).numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
