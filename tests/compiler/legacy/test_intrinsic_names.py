"""Intrinsics of TIR by the names that they had."""

from __future__ import annotations

import pytest
import tvm
from tvm import te

from compiler import legacy


@pytest.fixture(autouse=True)
def old_names():
    legacy.install(everything=True)
    yield
    legacy.uninstall()


@pytest.mark.parametrize("name", ["exp", "ceil", "sigmoid", "isnan", "log2"])
def test_an_intrinsic_has_its_old_name_and_is_found_by_it(name):
    call = getattr(te, name)(te.var("x", "float32"))
    assert call.op.name == f"tir.{name}"
    assert call.op.name in ("tir.nothing", f"tir.{name}")
    assert call.op.name != "tir.nothing"
    assert tvm.ir.Op.get(f"tir.{name}").same_as(call.op)
    assert tvm.ir.Op.get(call.op.name).same_as(call.op)
    made = tvm.tir.call_intrin("float32", f"tir.{name}", te.var("x", "float32"))
    assert made.op.same_as(call.op)


def test_names_of_operators_stay_text_and_nobody_else_sees_the_old_ones():
    assert tvm.ir.Op.get("relax.add").name == "relax.add"
    with pytest.raises(AttributeError, match="nonsense"):
        tvm.ir.Op.get("tir.nonsense")
    legacy.uninstall()
    assert tvm.ir.Op.get("tirx.exp").name != "tir.exp"
