"""Relax's operators under the keywords of TVM 0.13 to 0.20."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from compiler import legacy

SCRIPT = """
@I.ir_module
class Module:
    @T.prim_func
    def add(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("y"):
                vi = T.axis.spatial(4, i)
                y[vi] = x[vi] + T.float32(1)

    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        cls = Module
        with R.dataflow():
            a = R.call_tir(cls.add, (x,), out_sinfo=R.Tensor((4,), dtype="float32"))
            b = R.call_pure_packed(
                "test_relax_keywords.same", a, sinfo_args=(R.Tensor((4,), dtype="float32"),)
            )
            R.output(b)
        return b
"""


def test_tvmscript_takes_them():
    with legacy.installed():
        tvm.register_func("test_relax_keywords.same", lambda x: x, override=True)
        module = tvm.script.from_source(SCRIPT)
        run = relax.VirtualMachine(relax.build(module, "llvm"), tvm.cpu())
        found = run["main"](tvm.nd.array(np.arange(4, dtype="float32"))).numpy()
        np.testing.assert_array_equal(found, [1, 2, 3, 4])


def test_python_takes_them():
    with legacy.installed():
        x = relax.Var("x", relax.TensorStructInfo((2,), "float32"))
        call = relax.call_dps_packed("anything", (x,), out_sinfo=x.struct_info)
        assert call.op.name == "relax.call_dps_packed" and len(call.ty_args) == 1
