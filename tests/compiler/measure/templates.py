"""Templates that misbehave in every way that a measurement must survive."""

from __future__ import annotations

import signal
import time

import numpy as np
import tvm
from tvm import te

from compiler import autotvm

N = 64
BehaviorS = ("fine", "refuses", "raises", "crashes", "hangs", "hoards", "wrong", "aborts", "spins")


def double(values):
    return values * 2


def misbehaving(how):
    """out = 2 * x, or whatever the knob says."""
    cfg = autotvm.get_config()
    cfg.define_knob("how", list(BehaviorS))
    how = cfg["how"].val
    if isinstance(cfg, autotvm.ConfigSpace):
        how = "fine"
    x = te.placeholder((N,), name="x")
    factor = 3 if how == "wrong" else 2
    out = te.compute((N,), lambda i: _element(how, x[i] * factor), name="out")
    sch = tvm.s_tir.Schedule(te.create_prim_func([x, out]))
    if how == "refuses":
        cfg.raise_error("this config can't be scheduled")
    elif how == "raises":
        raise KeyError("a mistake in the template")
    elif how == "crashes":
        signal.raise_signal(signal.SIGSEGV)
    elif how == "hangs":
        time.sleep(600)
    elif how == "hoards":
        np.ones(1 << 33, "uint8")
    return sch, [x, out]


def _element(how, value):
    if how == "aborts":  # at run time
        return value + tvm.tirx.call_extern("float32", "abort")
    if how == "spins":
        return value + tvm.tirx.call_extern("int32", "sleep", 600).astype("float32")
    return value


def split_sum(n):
    """out[i] = sum of row i, with a split."""
    cfg = autotvm.get_config()
    x = te.placeholder((n, n), name="x")
    k = te.reduce_axis((0, n), "k")
    out = te.compute((n,), lambda i: te.sum(x[i, k], axis=k), name="out")
    sch = tvm.s_tir.Schedule(te.create_prim_func([x, out]))
    block = sch.get_sblock("out")
    rows, _ = sch.get_loops(block)
    cfg.define_split("tile", cfg.axis(n), num_outputs=2)
    cfg.define_knob("parallel", [False, True])
    outer, _ = cfg["tile"].apply(sch, rows)
    if cfg["parallel"].val:
        sch.parallel(outer)
    cfg.add_flop(n * n)
    return sch, [x, out]


def row_sums(values):
    return values.astype("float64").sum(axis=1)


def register():
    """Register the templates under their names."""
    autotvm.template("test.misbehaving", reference=double)(misbehaving)
    autotvm.template("test.split_sum", reference=row_sums)(split_sum)
