"""TVMScript and passes over TIR under their names of TVM 0.9 to 0.19."""

from __future__ import annotations

import numpy as np
import tvm

from compiler import legacy

with legacy.installed():
    from tvm.script import tir as T

    @T.prim_func
    def add_one(a: T.handle, b: T.handle):
        T.func_attr({"global_symbol": "main", "tir.noalias": True})
        A = T.match_buffer(a, (8,), "float32")
        B = T.match_buffer(b, (8,), "float32")
        C = T.alloc_buffer((8,), "float32")
        for i in range(8):
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                C[vi] = A[vi] + T.float32(1)
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = C[vi] * T.float32(2)

    @T.prim_func
    def twice(a: T.handle, b: T.handle):
        n = T.int32(is_size_var=True)
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        for i in range(n):
            with T.block("B"):
                vi = T.axis.spatial(n, i)
                B[vi] = A[vi] * T.float32(2)


def test_sizes_are_variables_and_functions_are_shown(capsys):
    with legacy.installed():
        built = tvm.build(twice, target="llvm")
        a, b = (tvm.nd.array(np.arange(5, dtype="float32")) for _ in range(2))
        built(a, b)
        tvm.IRModule({"main": twice}).show(show_all_struct_info=False)
        assert "T.prim_func" in twice.script(show_all_struct_info=True)
    np.testing.assert_array_equal(b.numpy(), np.arange(5) * 2)
    assert "main" in capsys.readouterr().out


def test_blocks_are_scheduled_and_built():
    with legacy.installed():
        sch = tvm.tir.Schedule(add_one)
        block = sch.get_block("B")
        outer, inner = sch.split(sch.get_loops(block)[0], [None, 4])
        sch.vectorize(inner)
        sch.compute_at(sch.get_block("C"), outer)
        built = tvm.build(sch.mod, target="llvm")
        a, b = (tvm.nd.array(np.arange(8, dtype="float32")) for _ in range(2))
        built["main"](a, b)
        assert add_one.attrs["tirx.noalias"]
    np.testing.assert_array_equal(b.numpy(), (np.arange(8) + 1) * 2)


def test_a_loop_becomes_a_block_by_its_old_keyword():
    with legacy.installed():
        sch = tvm.tir.Schedule(add_one)
        _, inner = sch.split(sch.get_loops(sch.get_block("B"))[0], [None, 4])
        block = sch.blockize(loop=inner)
        assert len(sch.get_loops(block)) == 1


def test_passes_and_analyses_are_found_where_they_were():
    with legacy.installed():
        module = tvm.IRModule({"main": add_one})
        lowered = tvm.tir.transform.ConvertBlocksToOpaque()(module)
        simple = tvm.tir.transform.Simplify()(lowered)
        assert tvm.tir.analysis.estimate_tir_flops(module) == 16
        assert tvm.tir.analysis.expr_deep_equal(tvm.tir.const(1), tvm.tir.const(1))
        assert "main" in [gvar.name_hint for gvar in simple.get_global_vars()]
        assert not hasattr(tvm.tir.transform, "NoSuchPass")


def test_relax_reads_its_own_print_of_no_result_type():
    with legacy.installed():
        from tvm.script import relax as R

        @R.function
        def product(x: R.Tensor((2, 3), "float32"), w: R.Tensor((3, 4), "float32")) -> R.Tensor:
            return R.matmul(x, w, out_dtype="void")

        assert str(product.ret_ty.dtype) == "float32"


def test_external_functions_use_numpys_blas():
    with legacy.installed():
        from tvm import te
        from tvm.contrib import cblas

        a, b = (te.placeholder((3, 3), name=name) for name in "ab")
        c = cblas.matmul(a, b, transb=True)
        f = tvm.build(te.create_schedule(c.op), [a, b, c], "llvm")
        x = np.arange(9, dtype="float32").reshape(3, 3)
        out = tvm.nd.empty((3, 3))
        f(tvm.nd.array(x), tvm.nd.array(x), out)
    np.testing.assert_allclose(out.numpy(), x @ x.T)


with legacy.installed():

    @T.prim_func
    def matmul_of_0_8(a: T.handle, b: T.handle, c: T.handle) -> None:
        A = T.match_buffer(a, [4, 8])
        B = T.match_buffer(b, [5, 8])
        C = T.match_buffer(c, [4, 5])
        for i, j, k in T.grid(4, 5, 8):
            with T.block([4, 5, T.reduce_axis(0, 8)], "C") as [vi, vj, vk]:
                T.bind(vi, i)
                T.bind(vj, j)
                T.bind(vk, k)
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vj, vk]

    @T.prim_func
    def add_of_0_8(a: T.handle, c: T.handle) -> None:
        A = T.match_buffer(a, [4, 8])
        C = T.match_buffer(c, [4, 8])
        for i, j in T.grid(4, 8):  # noqa: B007
            with T.block([4, 8], "C") as [vi, vj]:
                C[vi, vj] = A[vi, vj] + T.float32(1)

    @T.prim_func
    def sum_with_init_in_a_loop(A: T.Buffer((4, 3), "float32"), C: T.Buffer((4,), "float32")):
        for i in T.grid(4):
            with T.block("C"):
                vi = T.axis.spatial(4, i)
                for d in range(3):
                    with T.init():
                        C[vi] = T.float32(0)
                    C[vi] += A[vi, d]


def run_script_function(function, *arrays):
    with legacy.installed():
        tensors = [tvm.nd.array(each) for each in arrays]
        tvm.build(function, target="llvm")(*tensors)
    return tensors[-1].numpy()


def test_blocks_of_tvm_0_8_bind_their_axes_in_the_body_or_to_the_loops_around():
    a, b = (np.arange(8 * n, dtype="float32").reshape(n, 8) for n in (4, 5))
    found = run_script_function(matmul_of_0_8, a, b, np.zeros((4, 5), "float32"))
    np.testing.assert_allclose(found, a @ b.T)
    np.testing.assert_array_equal(run_script_function(add_of_0_8, a, np.zeros_like(a)), a + 1)
    with legacy.installed():
        sch = tvm.tir.Schedule(matmul_of_0_8)
        block = sch.get_block("C")
        sch.decompose_reduction(block, sch.get_loops(block)[2])
    found = run_script_function(sch.mod["main"], a, b, np.zeros((4, 5), "float32"))
    np.testing.assert_allclose(found, a @ b.T)


def test_an_init_below_a_loop_of_its_block_runs_once():
    a = np.arange(12, dtype="float32").reshape(4, 3)
    found = run_script_function(sum_with_init_in_a_loop, a, np.full(4, 7, "float32"))
    np.testing.assert_array_equal(found, a.sum(1))


def test_workspaces_are_counted_in_aligned_bytes():
    with legacy.installed():
        count = tvm.tir.analysis.calculate_workspace_bytes
        assert count(add_one, 64) == 64  # 8 floats
        assert count(twice, 64) == 0


def test_a_block_that_reads_a_loop_variable_is_warned_of_and_built(caplog):
    with legacy.installed():

        @T.prim_func
        def negate(A: T.Buffer((2, 3), "int64"), B: T.Buffer((2, 3), "int64")):
            for i, j in T.grid(2, 3):
                with T.block("B"):
                    vi = T.axis.spatial(2, i)
                    vj = T.axis.spatial(3, j)
                    B[vi, vj] = A[i, vj] * T.int64(-1)

        assert "not well-formed" in caplog.text
    a = np.arange(6).reshape(2, 3)
    np.testing.assert_array_equal(run_script_function(negate, a, np.zeros_like(a)), -a)
