"""Scripts of TVM 0.6 run as they are; their names are off for others."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
import tvm

from compiler import legacy
from compiler.errors import InputError, LegacyImportError
from compiler.legacy.v0_6 import is_of_the_era

SCHEDULE = """
    import numpy as np
    import topi
    import tvm
    from tvm import relay
    from tvm.contrib import util

    n = tvm.var("n")
    A = tvm.placeholder((n,), name="A", dtype=tvm.float32)
    B = tvm.compute(A.shape, lambda i: tvm.if_then_else(i < 2, tvm.exp(A[i]), tvm.const(0.5)), "B")
    s = tvm.create_schedule(B.op)
    xo, xi = s[B].split(B.op.axis[0], factor=4)
    s[B].vectorize(xi)
    f = tvm.build(s, [A, B], "llvm", name="some")
    a = tvm.nd.array(np.arange(6, dtype="float32"), ctx=tvm.cpu(0))
    b = tvm.nd.empty((6,), ctx=tvm.context("cpu"))
    f(a, b)
    expected = np.array([1, np.e, 0.5, 0.5, 0.5, 0.5], "float32")
    tvm.testing.assert_allclose(b.asnumpy(), expected, rtol=1e-5)

    k = tvm.reduce_axis((0, 4), "k")
    X = tvm.placeholder((3, 4), name="X")
    Y = topi.sum(X, axis=1)
    assert isinstance(Y.op, tvm.tensor.ComputeOp)
    statement = tvm.lower(tvm.create_schedule(Y.op), [X, Y], simple_mode=True)
    seen = []
    tvm.ir_pass.PostOrderVisit(statement, lambda op: seen.append(isinstance(op, tvm.stmt.For)))
    assert sum(seen) == 2

    def unrolled(statement):
        def change(op):
            kind = tvm.stmt.For.Unrolled
            return tvm.make.For(op.loop_var, op.min, op.extent, kind, 0, op.body)
        return tvm.ir_pass.IRTransform(statement, None, change, ["For"])

    with tvm.build_config(add_lower_pass=[(1, unrolled)], unroll_explicit=True):
        text = str(tvm.lower(tvm.create_schedule(Y.op), [X, Y], simple_mode=True))
    assert text.count("T.unroll(") == 2, text

    from topi.x86.util import get_fp32_len
    from tvm._ffi.function import _init_api

    assert get_fp32_len() in (4, 8, 16) and callable(_init_api)
    x = relay.var("x", shape=(2, 3))
    free = relay.ir_pass.free_vars(relay.nn.relu(x))
    assert [each.name_hint for each in free] == ["x"]
    assert relay.ir_pass.infer_type(relay.nn.relu(x)).checked_type == x.type_annotation
    assert relay.module.Module is relay.Module
    mod = relay.Module.from_expr(relay.Function([x], relay.nn.relu(x)))
    with relay.build_module.build_config(opt_level=2):
        mod = relay.transform.Sequential([relay.transform.FoldConstant()])(mod)
    mod = relay.transform.Sequential([relay.transform.InferType()])(mod)
    assert relay.alpha_equal(mod["main"], mod["main"])
    print("to the end")
"""


def run(tmp_path, text, *options):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(text))
    command = [sys.executable, "-m", "compiler", "run", *options, str(script)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_script_of_06_is_recognized_and_runs(tmp_path):
    ran = run(tmp_path, SCHEDULE)
    assert ran.stdout.endswith("to the end\n"), ran.stderr


def test_functions_are_templates_without_names_and_are_tuned_in_other_processes(tmp_path):
    ran = run(
        tmp_path,
        """
        import tvm
        from tvm import autotvm

        @autotvm.template
        def double(n):
            A = tvm.placeholder((n,), name="A")
            B = tvm.compute((n,), lambda i: A[i] * 2, name="B")
            s = tvm.create_schedule(B.op)
            cfg = autotvm.get_config()
            cfg.define_split("tile", B.op.axis[0], num_outputs=2)
            cfg["tile"].apply(s, B, B.op.axis[0])
            return s, [A, B]

        task = autotvm.task.create(double, args=(8,), target="llvm")
        option = autotvm.measure_option("local", autotvm.LocalRunner(number=1, repeat=1))
        log = autotvm.callback.log_to_file(__file__ + ".log")
        autotvm.tuner.RandomTuner(task).tune(1, measure_option=option, callbacks=[log])
        """,
        "--era=0.6",
    )
    assert ran.returncode == 0, ran.stderr


def test_its_names_are_off_for_scripts_of_later_eras_and_say_so(tmp_path):
    ran = run(tmp_path, "import tvm\nprint(getattr(tvm, 'v' + 'ar', 'no such name'))")
    assert ran.stdout == "no such name\n"
    ran = run(tmp_path, "import tvm\ngetattr(tvm, 'placeholder'.lower())")
    assert "tvm.placeholder is a name of TVM 0.6: run the script with" in ran.stderr
    ran = run(tmp_path, "import tvm\nprint(getattr(tvm, 'v' + 'ar')('n'))", "--era", "0.6")
    assert ran.stdout == "n\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import topi.nn", True),
        ("from topi import nn", True),
        ("from tvm import placeholder", True),
        ("x = tvm.compute", True),
        ("m = relay.Module()", True),
        ("f = tvm.relay.ir_pass.free_vars(f)", True),
        ("p = relay.transform.Sequential([])", True),
        ("p = tvm.relay.transform.Sequential([])", True),
        ("from tvm.relay.transform import Sequential", True),
        ("with relay.build_module.build_config(opt_level=3): pass", True),
        ("p = tvm.transform.Sequential([])", False),
        ("m = relay.transform.FoldConstant()", False),
        ("from tvm import te\nx = te.compute", False),
        ("from tvm import topi\nx = topi.nn.relu(y)", False),
        ("tvm.build(s)", False),
        ("not Python(", False),
    ],
)
def test_an_era_is_known_by_its_names(text, expected):
    assert is_of_the_era(text) is expected


def test_an_era_that_never_was_is_refused():
    with pytest.raises(InputError, match=r"era '1\.0': give a version of TVM from 0\.6 to 0\.19"):
        legacy.install(everything=True, era="1.0")


def test_configs_beyond_the_last_one_start_again_from_the_first(tmp_path):
    text = """
from tvm.autotvm.task.space import ConfigSpace
space = ConfigSpace()
space.define_knob("step", [1, 2, 4])
try:
    print(space.get(4)["step"].val)
except IndexError as error:
    print(error)
"""
    assert run(tmp_path, text, "--era", "0.6").stdout == "2\n"
    assert run(tmp_path, text, "--era", "0.8").stdout == "config 4 of a space of 3\n"


def test_the_names_go_with_the_switch():
    legacy.install(everything=True, era="0.6")
    try:
        assert tvm.var("n").name == "n"
        with pytest.raises(LegacyImportError, match="NNVM ended with"):
            __import__("nnvm")
    finally:
        legacy.uninstall()
    assert not hasattr(tvm, "var")
    with pytest.raises(ImportError):
        __import__("topi")
