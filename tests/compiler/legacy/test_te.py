"""Scripts of TVM 0.18 that schedule tensor expressions run as they are."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]


def run(folder, text):
    """Run a script in a process of its own, which the old names need."""
    script = folder / "script.py"
    script.write_text(textwrap.dedent(text))
    program = "import sys; from compiler.legacy import run_script; run_script(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", program, str(script)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_a_template_is_tuned_and_its_log_applied(tmp_path):
    shown = run(
        tmp_path,
        """
        import numpy as np
        import tvm
        from tvm import autotvm, te

        @autotvm.template("tutorial/matmul")
        def matmul(n, l, m, dtype):
            a = te.placeholder((n, l), name="A", dtype=dtype)
            b = te.placeholder((l, m), name="B", dtype=dtype)
            k = te.reduce_axis((0, l), name="k")
            c = te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
            s = te.create_schedule(c.op)
            y, x = s[c].op.axis
            k = s[c].op.reduce_axis[0]
            cfg = autotvm.get_config()
            cfg.define_split("tile_y", y, num_outputs=2)
            cfg.define_split("tile_x", x, num_outputs=2)
            cfg.define_annotate("ann", [y, x], policy="try_vec")
            yo, yi = cfg["tile_y"].apply(s, c, y)
            xo, xi = cfg["tile_x"].apply(s, c, x)
            s[c].reorder(yo, xo, k, yi, xi)
            cfg["ann"].apply(s, c, [yi, xi])
            return s, [a, b, c]

        if __name__ == "__main__":
            args = (16, 16, 16, "float32")
            task = autotvm.task.create("tutorial/matmul", args=args, target="llvm")
            assert len(task.config_space) >= 25
            option = autotvm.measure_option(builder="local", runner=autotvm.LocalRunner(number=1))
            tuner = autotvm.tuner.RandomTuner(task)
            log = [autotvm.callback.log_to_file("matmul.log")]
            tuner.tune(n_trial=2, measure_option=option, callbacks=log)
            with autotvm.apply_history_best("matmul.log"):
                with tvm.target.Target("llvm"):
                    s, args = matmul(16, 16, 16, "float32")
                    func = tvm.build(s, args)
            a, b = (np.random.rand(16, 16).astype(args[0].dtype) for _ in range(2))
            out = tvm.nd.empty((16, 16))
            func(tvm.nd.array(a), tvm.nd.array(b), out)
            np.testing.assert_allclose(out.numpy(), a @ b, rtol=1e-4)
            best = [res for _, res in autotvm.record.load_from_file("matmul.log")]
            print("errors", sum(res.error_no != 0 for res in best), "of", len(best))
        """,
    )
    assert "errors 0 of 2" in shown


def test_lower_build_and_time_with_old_spellings(tmp_path):
    shown = run(
        tmp_path,
        """
        import numpy as np
        import tvm
        from tvm import te

        n = te.var("n")
        a = te.placeholder((n,), name="A")
        c = te.compute(a.shape, lambda i: a[i] + 1.0, name="C")
        s = te.create_schedule(c.op)
        outer, inner = s[c].split(c.op.axis[0], factor=8)
        s[c].vectorize(inner)
        bounds = te.schedule.InferBound(s)
        assert bounds[inner].extent.value == 8
        print(tvm.lower(s, [a, c], simple_mode=True))
        f = tvm.build(s, [a, c], tvm.target.Target("llvm -mcpu=x86-64-v3"), name="addone")
        dev = tvm.cpu(0)
        x = tvm.nd.array(np.zeros(20, dtype=c.dtype), dev)
        y = tvm.nd.array(np.zeros(20, dtype=c.dtype), dev)
        f(x, y)
        assert (y.numpy() == 1).all()
        assert f.time_evaluator(f.entry_name, dev, number=1)(x, y).mean > 0
        assert "addone" in f.get_source() and f.imported_modules == []
        """,
    )
    assert "T.vectorized(8)" in shown


def test_installing_the_old_names_does_not_load_schedules():
    program = (
        "import sys, compiler.legacy; compiler.legacy.install(everything=True); "
        "assert not [m for m in sys.modules if (m + '.').startswith('compiler.legacy.te.')]"
    )
    subprocess.run([sys.executable, "-c", program], cwd=_ROOT, check=True, timeout=120)


def test_a_pass_of_the_scripts_own_is_run_while_lowering(tmp_path):
    shown = run(
        tmp_path,
        """
        import numpy as np
        import tvm
        from tvm import te

        n = tvm.tir.const(64, "int32")
        a = te.placeholder((n,), name="a")
        b = te.compute((n,), lambda i: a[i] + 1.0, name="b")
        s = te.create_schedule(b.op)
        seen = []

        def noting(phase):
            @tvm.tir.transform.prim_func_pass(opt_level=0)
            def note(f, mod, ctx):
                seen.append(phase)
                return f
            return note

        def twice(op):
            if isinstance(op, tvm.tir.FloatImm):
                return tvm.tir.const(2.0, "float32")

        @tvm.tir.transform.prim_func_pass(opt_level=0)
        def change(f, mod, ctx):
            return f.with_body(
                tvm.tir.stmt_functor.ir_transform(f.body, None, twice, ["FloatImm"])
            )

        passes = [(3, noting(3)), (0, noting(0)), (2, noting(2)), (1, change), (1, noting(1))]
        with tvm.transform.PassContext(config={"tir.add_lower_pass": passes}):
            assert "2.0" in tvm.lower(s, [a, b]).script()
            print(seen)
            function = tvm.build(s, [a, b], "llvm")
        out = tvm.nd.empty((64,))
        function(tvm.nd.array(np.ones(64, "float32")), out)
        print(out.numpy().sum())
        """,
    )
    assert shown.split("\n")[:2] == ["[0, 1, 2, 3]", "192.0"]


def test_a_pass_of_ones_own_sees_and_changes_the_kernels_of_relay_build(tmp_path):
    shown = run(
        tmp_path,
        """
        import numpy as np
        import tvm
        from tvm import relay
        from tvm.contrib import graph_executor

        x = relay.var("x", shape=(1, 8, 10, 10))
        weight = relay.const(np.ones((4, 8, 3, 3), "float32"))
        y = relay.clip(relay.nn.conv2d(x, weight, channels=4, kernel_size=(3, 3)), 0.0, 3.0)
        mod = tvm.IRModule.from_expr(relay.nn.max_pool2d(y, (2, 2)))
        value = np.random.default_rng(0).standard_normal((1, 8, 10, 10), "float32")

        def result(*passes):
            with tvm.transform.PassContext(3, config={"tir.add_lower_pass": passes}):
                lib = relay.build(mod, "llvm")
            run = graph_executor.GraphModule(lib["default"](tvm.cpu()))
            run.run(x=value)
            return run.get_output(0).numpy()

        seen = []

        @tvm.tir.transform.prim_func_pass(opt_level=0)
        def note(f, mod, ctx):
            assert isinstance(f, tvm.tir.PrimFunc)
            seen.append(f)
            return f

        def change(old, new):
            def replace(op):
                if isinstance(op, tvm.tir.FloatImm) and op.value == old:
                    return tvm.tir.const(new, "float32")

            @tvm.tir.transform.prim_func_pass(opt_level=0)
            def run(f, mod, ctx):
                return f.with_body(
                    tvm.tir.stmt_functor.ir_transform(f.body, None, replace, ["tir.FloatImm"])
                )
            return run

        as_before = result()
        np.testing.assert_array_equal(result((0, note), (3, note)), as_before)
        print(len(seen) >= 4, all(f.attrs["global_symbol"] for f in seen))
        for phase in range(4):
            clipped_higher = result((phase, change(3.0, 5.0)))
            assert clipped_higher.max() == 5 > as_before.max() == 3
            np.testing.assert_allclose(clipped_higher.clip(0, 3), as_before, rtol=1e-5)
        """,
    )
    assert shown == "True True\n"


def test_a_call_without_a_value_is_a_statement_of_the_builder(tmp_path):
    shown = run(
        tmp_path,
        """
        import tvm

        buffer = tvm.tir.decl_buffer((16,), "float16")
        ib = tvm.tir.ir_builder.create()
        ib.emit(tvm.tir.call_intrin("handle", "tir.tvm_storage_sync", "shared"))
        ib.scope_attr(buffer.data, "note", "text")
        ib.emit(tvm.tir.call_extern("int32", "reset", buffer.data))
        first, scope = ib.get().seq
        print(tvm.tir.Call is type(first.value), scope.value.value)
        """,
    )
    assert shown.split() == ["True", "text"]


def test_a_pointer_of_the_builder_is_a_parameter_of_a_function(tmp_path):
    shown = run(
        tmp_path,
        """
        import numpy as np
        import tvm

        ib = tvm.tir.ir_builder.create()
        n = tvm.te.var("n")
        data = ib.pointer("float32", name="data")
        with ib.for_range(0, n) as i:
            data[i] = data[i] + i.astype("float32")
        function = tvm.tir.PrimFunc([data, n], ib.get()).with_attr("global_symbol", "main")
        array = tvm.nd.array(np.ones(4, "float32"))
        tvm.build(tvm.IRModule({"main": function}), target="llvm")["main"](array, 3)
        print(*array.numpy())
        """,
    )
    assert shown.split() == ["1.0", "2.0", "3.0", "1.0"]


def test_an_extent_that_running_tells_is_one_of_a_placeholder(tmp_path):
    shown = run(
        tmp_path,
        """
        import numpy as np
        import tvm
        from tvm import te

        extent = tvm.tir.Any()
        a = te.placeholder((2, extent), name="a")
        k = te.reduce_axis((0, tvm.tir.FloorDiv(extent, 2)), "k")
        b = te.compute((2,), lambda i: te.sum(a[i, k * 2], axis=k), name="b")
        function = tvm.build(te.create_schedule(b.op), [a, b], "llvm")
        out = tvm.nd.empty((2,))
        function(tvm.nd.array(np.arange(12, dtype="float32").reshape(2, 6)), out)
        print(*out.numpy())
        """,
    )
    assert shown.split() == ["6.0", "24.0"]


def test_long_chains_of_operators_are_freed(tmp_path):
    shown = run(
        tmp_path,
        """
        from tvm import relax

        x = relax.Var("x", relax.TensorType((2,), "float32"))
        chain = x
        for _ in range(100_000):
            chain = relax.TupleGetItem(relax.Tuple([chain]), 0)
        del chain
        print("freed")
        """,
    )
    assert shown.strip() == "freed"


def test_bits_of_bfloat16_are_passed_as_uint16(tmp_path):
    shown = run(
        tmp_path,
        """
        import numpy as np
        import tvm
        from tvm import te

        a = te.placeholder((4,), dtype="bfloat16")
        b = te.compute((4,), lambda i: a[i] + a[i])
        f = tvm.build(te.create_schedule(b.op), [a, b], "llvm")
        ones = np.full(4, 0x3F80, "uint16")
        result = tvm.nd.empty((4,), "uint16")
        f(tvm.nd.array(ones), result)
        print(result.numpy() == 0x4000)  # 2.0
        try:
            f(tvm.nd.array(ones.astype("int16")), result)
        except ValueError as error:
            print(str(error).splitlines()[0])
        """,
    )
    assert shown.splitlines() == [
        "[ True  True  True  True]",
        "Mismatched argument #0 when calling:",
    ]


def test_axes_are_kept_in_sets(tmp_path):
    shown = run(
        tmp_path,
        """
        import tvm
        from tvm import te

        a = te.placeholder((4, 4), name="A")
        k = te.reduce_axis((0, 4), "k")
        b = te.compute((4,), lambda i: te.sum(a[i, k], axis=k))
        s = te.create_schedule(b.op)
        print(set(s[b].op.reduce_axis) == {k}, {k: "found"}[s[b].op.reduce_axis[0]])
        """,
    )
    assert shown.split() == ["True", "found"]


def test_hybrid_functions_of_both_eras_have_axes_to_schedule(tmp_path):
    shown = run(
        tmp_path,
        """
        import numpy as np
        import tvm
        from tvm import te
        from tvm.te.hybrid import script

        @tvm.hybrid.script
        def doubled(a):
            b = output_tensor(a.shape, a.dtype)
            for i in range(a.shape[0]):
                b[i] = a[i] * 2.0
            return b

        @script
        def outer(a, b):
            c = output_tensor((a.shape[0], b.shape[0]), a.dtype)
            for i in range(a.shape[0]):
                for j in range(b.shape[0]):
                    c[i, j] = a[i] * b[j]
            return c

        a, b = te.placeholder((8,), name="a"), te.placeholder((6,), name="b")
        c = outer(doubled(a), b)
        s = te.create_schedule(c.op)
        i, j = s[c].op.axis
        outer_loop, inner_loop = s[c].split(i, factor=4)
        s[c].reorder(outer_loop, j, inner_loop)
        s[c].vectorize(inner_loop)
        func = tvm.build(s, [a, b, c], "llvm")
        x, y = np.random.rand(8).astype("float32"), np.random.rand(6).astype("float32")
        out = tvm.nd.array(np.zeros((8, 6), "float32"))
        func(tvm.nd.array(x), tvm.nd.array(y), out)
        np.testing.assert_allclose(out.numpy(), np.outer(x * 2, y), rtol=1e-6)
        np.testing.assert_allclose(outer(doubled(x), y), np.outer(x * 2, y), rtol=1e-6)
        module = te.hybrid.build(s, [a, b], [c], name="made")
        np.testing.assert_allclose(module(x, y), np.outer(x * 2, y), rtol=1e-6)
        print(module.get_source())
        """,
    )
    assert "in vectorize(4)" in shown


def test_computes_are_differentiated(tmp_path):
    shown = run(
        tmp_path,
        """
        import numpy as np
        import tvm
        from tvm import te, topi

        x = te.placeholder((4, 5), name="x")
        w = te.placeholder((3, 5), name="w")
        y = topi.nn.relu(topi.nn.dense(x, w))
        of_x, of_w = te.gradient(y, [x, w], head=topi.full_like(y, 1.0))
        s = te.create_schedule([of_x.op, of_w.op])
        func = tvm.build(s, [x, w, of_x, of_w], "llvm")
        a, b = np.random.randn(4, 5).astype("float32"), np.random.randn(3, 5).astype("float32")
        outs = [tvm.nd.array(np.zeros(n, "float32")) for n in ((4, 5), (3, 5))]
        func(tvm.nd.array(a), tvm.nd.array(b), *outs)
        mask = (a @ b.T > 0).astype("float32")
        np.testing.assert_allclose(outs[0].numpy(), mask @ b, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(outs[1].numpy(), mask.T @ a, rtol=1e-4, atol=1e-5)
        print("right")
        """,
    )
    assert "right" in shown
