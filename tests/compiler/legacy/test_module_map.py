"""Names that scripts of TVM 0.7 to 0.19 use now and then."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import numpy as np
import pytest
import tvm

from compiler import legacy
from compiler.errors import LegacyImportError


@pytest.fixture(scope="module")
def module():
    with legacy.installed():
        from tvm import relay

        x = relay.var("x", shape=(2, 3))
        return tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(x) + relay.const(1.0)))


def test_libraries_for_the_aot_executor_run_on_zeros_where_inputs_are_unset(module):
    with legacy.installed():
        from tvm import relay
        from tvm.relay.backend import Executor, Runtime
        from tvm.runtime.executor.aot_executor import AotModule

        lib = relay.build(module, "llvm", executor=Executor("aot"), runtime=Runtime("cpp"))
        run = AotModule(lib["default"](tvm.cpu()))
        run.run()
        np.testing.assert_array_equal(run.get_output(0).numpy(), np.ones((2, 3), "float32"))
        assert run.benchmark(tvm.cpu(), number=1, repeat=1).mean > 0
        run.set_input("x", np.full((2, 3), 2.0))
        run.run()
        assert run.get_output(0).numpy()[0, 0] == 3
        assert "section .text" in lib.get_lib().get_source("asm")
        with pytest.raises(tvm.TVMError, match="no input 'y'"):
            run.set_input("y", np.zeros(3))


def test_the_source_of_a_library_is_llvm_ir_of_the_build_s_own_passes(module):
    with legacy.installed():
        from tvm import relay

        texts = []
        for level in (0, 3):
            with tvm.transform.PassContext(opt_level=level):
                _, lib, _ = relay.build(module, "llvm")
            texts.append(lib.get_source())
            assert "section .text" in lib.get_source("asm")
    functions = [text.count("\ndefine ") for text in texts]
    assert all("target triple" in text for text in texts)
    assert functions[0] >= functions[1] > 0


def test_unset_inputs_stay_an_error_for_others(module):
    from compiler import relay
    from compiler.errors import InputError

    lib = relay.build(module, "llvm")
    run = lib["default"](tvm.cpu())
    with pytest.raises(InputError, match="have not been set: x"):
        run.run()


def test_lowered_functions_are_text_and_their_code_is_saved(tmp_path):
    with legacy.installed():
        from tvm import te, topi

        a, b = (te.placeholder((4,), name=name) for name in "ab")
        c = topi.broadcast_mul(topi.broadcast_sub(a, b), b)
        sch = te.create_schedule(c.op)
        assert "T.prim_func" in tvm.lower(sch, [a, b, c], simple_mode=True).astext()
        path = tmp_path / "code.ll"
        tvm.build(sch, [a, b, c], "llvm").save(str(path))
        assert "ModuleID" in path.read_text()


def test_modules_of_tuners_are_found():
    with legacy.installed():
        from tvm.auto_scheduler.utils import request_remote
        from tvm.autotvm.measure.measure_methods import check_remote
        from tvm.autotvm.task.dispatcher import ApplyConfig
        from tvm.autotvm.task.space import ConfigEntity, ConfigSpace
        from tvm.ir.container import Array

        from compiler import autotvm

        assert autotvm.task.ApplyConfig is ApplyConfig
        space = ConfigSpace()
        space.define_knob("unroll", [1, 2])
        with ApplyConfig(space.get(1)) as context:
            found = context.query("llvm", ("anything", 1))
        assert isinstance(found, ConfigEntity) and found["unroll"].val == 2
        assert list(Array([1])) == [1]
        assert not check_remote("llvm", "absent", "127.0.0.1", 9, timeout=1)
        with pytest.raises(RuntimeError, match="set TVM_TRACKER_HOST"):
            request_remote("nobody")


def test_what_went_with_ansor_says_what_to_use():
    with legacy.installed():
        from tvm import auto_scheduler
        from tvm.auto_scheduler import _ffi_api

        with pytest.raises(LegacyImportError, match="LocalRunner"):
            auto_scheduler.local_run()
        with pytest.raises(LegacyImportError, match="MetaSchedule"):
            _ffi_api.SearchPolicyUtilsGetConsumers(None, None)


def test_names_have_the_modules_that_defined_them():
    with legacy.installed():
        from tvm.auto_scheduler.cost_model import XGBModel
        from tvm.auto_scheduler.measure import MeasureResult
        from tvm.auto_scheduler.search_policy import SketchPolicy
        from tvm.auto_scheduler.search_task import SearchTask
        from tvm.auto_scheduler.task_scheduler import TaskScheduler
        from tvm.script import tir as by_script
        from tvm.script.parser import tir

        from compiler import auto_scheduler, relay

        for each in (XGBModel, MeasureResult, SketchPolicy, SearchTask, TaskScheduler):
            assert getattr(auto_scheduler, each.__name__) is each
        assert tir.prim_func is by_script.prim_func
        assert relay.op.tensor.add is relay.add and relay.op.reduce.sum is relay.sum
        assert tvm.autotvm.LocalBuilder(do_fork=True, runtime=None).timeout == 10


def test_modules_have_the_functions_that_tvm_defined_in_them():
    with legacy.installed():
        from tvm import relay
        from tvm.relay.op.tensor import concatenate
        from tvm.relay.op.transform import gather_nd, strided_slice
        from tvm.relay.transform import fake_quantization_to_integer

        assert gather_nd is relay.gather_nd and strided_slice is relay.strided_slice
        assert concatenate is relay.concatenate
        assert fake_quantization_to_integer.__name__.endswith(".fake_quantization_to_integer")
        assert relay.transform.mixed_precision.MIXED_PRECISION_NEVER == 2
        with pytest.raises(AttributeError, match=r"relay\.nonsense"):
            relay.op.transform.nonsense  # noqa: B018


def test_memory_of_numpy_is_an_array_wherever_it_begins():
    with legacy.installed():
        from tvm import te

        rows = np.arange(24, dtype="float32")
        for begin in (0, 1, 4):
            array = tvm.nd.from_dlpack(rows[begin : begin + 16])
            np.testing.assert_array_equal(array.asnumpy(), rows[begin : begin + 16])
        rows[4] = 7
        assert array.asnumpy()[0] == 7 and tvm.nd.numpyasarray(rows[1:5]).asnumpy()[3] == 7
        a = te.placeholder((4,), name="a")
        b = te.compute((4,), lambda i: a[i] + 1, name="b")
        add = tvm.build(te.create_schedule(b.op), [a, b], "llvm")
        memory = next(rows[i:] for i in range(16) if rows[i:].ctypes.data % 64)
        with pytest.raises(ValueError, match="begin at a multiple of 64 bytes"):
            add(tvm.nd.from_dlpack(memory[:4]), tvm.nd.empty((4,)))


def test_a_module_of_a_script_gets_the_functions_of_a_namespace(monkeypatch):
    with legacy.installed():
        own = types.ModuleType("strangers_own")
        monkeypatch.setitem(sys.modules, "strangers_own", own)
        tvm.register_func("strangers.namespace.twice", lambda value: 2 * value, override=True)
        tvm._ffi._init_api("strangers.namespace", "strangers_own")
        assert own.twice(4) == 8


def test_functions_of_the_registry_are_listed_and_removed():
    with legacy.installed():
        from tvm._ffi import registry

        registry.register_func("strangers.test", lambda: 7)
        assert "strangers.test" in registry.list_global_func_names()
        assert registry.get_global_func("strangers.test")() == 7
        registry.remove_global_func("strangers.test")
        assert "strangers.test" not in registry.list_global_func_names()


def test_what_machines_profiler_had_is_refused_by_name_when_it_is_used():
    with legacy.installed():
        from tvm.runtime import profiler_vm

        with pytest.raises(LegacyImportError, match=r"tvm\.runtime\.profiler_vm\..* is gone from"):
            profiler_vm.VirtualMachineProfiler(None)


def test_types_have_the_names_of_relax_and_the_compilers_cache_that_of_0_7(module):
    with legacy.installed():
        from tvm import dlight, relax
        from tvm.relax.backend.contrib.cublas import partition_for_cublas
        from tvm.relay.backend import compile_engine

        assert dlight.ApplyDefaultSchedule and partition_for_cublas
        compile_engine.get().clear()
        result = module["main"].body
        assert isinstance(result.struct_info, relax.TensorStructInfo)
        assert result.struct_info == relax.TensorStructInfo((2, 3), "float32")


def test_names_of_0_7_build_and_register(module):
    with legacy.installed():
        import tvm.tir.schedule
        from tvm import relax, relay
        from tvm.contrib import spirv
        from tvm.tir import tensor_intrin

        assert tensor_intrin.__name__ == "tvm.s_tir.tensor_intrin"
        assert tvm.tir.schedule.Schedule is tvm.tir.Schedule
        assert relax.vm.build is tvm.relax.build
        assert tvm.tir.expr.Any is tvm.tir.Any
        with pytest.raises(LegacyImportError, match="no code generator"):
            spirv.optimize(b"")
        assert relay.build(mod=module, target="llvm").report.kernels

        own = tvm.get_global_func("tvm_callback_cuda_compile", allow_missing=True)

        @tvm.register_func
        def tvm_callback_cuda_compile(code):
            raise AssertionError("builds have their own")

        after = tvm.get_global_func("tvm_callback_cuda_compile", allow_missing=True)
        assert (own is None) == (after is None)

        @tvm._ffi.register_func("baton.test_of_names.twice", override=True)
        def twice(value):
            return 2 * value

        assert tvm.get_global_func("baton.test_of_names.twice")(4) == 8


def test_an_error_of_tvmscript_is_shown(tmp_path):
    script = tmp_path / "wrong.py"
    script.write_text(
        "from tvm.script import tir as T\n"
        "@T.prim_func\n"
        "def main(a: T.handle):\n"
        "    A = T.match_buffer(a, (unknown,))\n"
    )
    with legacy.installed(), pytest.raises(SystemExit, match="Undefined variable: unknown"):
        legacy.run_script(script)


def test_executables_of_open_extents_are_saved(tmp_path):
    with legacy.installed():
        from tvm import relay

        x = relay.var("x", shape=(relay.Any(), 2))
        both = relay.Function([x], relay.Tuple([relay.nn.relu(x), relay.shape_of(x)]))
        executable = relay.vm.compile(tvm.IRModule.from_expr(both), "llvm")
        code, lib = executable.save()
        lib.export_library(str(tmp_path / "lib.so"))
        again = tvm.runtime.vm.Executable.load_exec(
            code, tvm.runtime.load_module(str(tmp_path / "lib.so"))
        )
        run = tvm.runtime.vm.VirtualMachine(again, tvm.cpu())
        for rows in (1, 3):
            value, shape = run.run(np.full((rows, 2), -1.0, "float32"))
            assert value.numpy().tolist() == [[0.0, 0.0]] * rows
            assert shape.numpy().tolist() == [rows, 2]


def test_libraries_and_headers_of_tvm_are_found(tmp_path):
    (tmp_path / "libown.so").touch()
    with legacy.installed():
        from tvm._ffi import libinfo

        assert tvm._ffi.libinfo is libinfo and libinfo.__version__ == tvm.__version__
        assert Path(tvm._ffi.base._LIB._name).is_file()
        compiler_library, runtime_library = tvm._ffi.libinfo.find_lib_path()
        assert "tvm_compiler" in compiler_library and "tvm_runtime" in runtime_library
        assert libinfo.find_lib_path(Path(runtime_library).name) == [runtime_library]
        assert libinfo.find_lib_path("libown.so", str(tmp_path)) == [str(tmp_path / "libown.so")]
        assert libinfo.find_lib_path("tvmjs.bundle.js", optional=True) is None
        with pytest.raises(RuntimeError, match=r"no libraries \['tvmjs.bundle.js'\] in \["):
            libinfo.find_lib_path("tvmjs.bundle.js")
        assert all((Path(each) / "tvm").is_dir() for each in libinfo.find_include_path())
        headers = libinfo.find_include_path(["tvm/runtime/logging.h", "tvm/ffi/any.h"])
        assert [Path(each).name for each in headers] == ["logging.h", "any.h"]


def test_x86_vectors_have_as_many_lanes_as_the_targets_cpu():
    with legacy.installed():
        from tvm.topi.x86.utils import get_simd_32bit_lanes

        for cpu, lanes in (("skylake-avx512", 16), ("core-avx2", 8), ("x86-64", 4)):
            with tvm.target.Target(f"llvm -mcpu={cpu}"):
                assert get_simd_32bit_lanes() == lanes == tvm.topi.x86.utils.get_fp32_len()
        assert get_simd_32bit_lanes() in (4, 8, 16)
