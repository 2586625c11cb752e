"""The opt_level of builds inside and outside of PassContexts."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import tvm

import compiler
from compiler import legacy, relay


def level_of_a_build():
    x = relay.var("x", shape=(3, 4))
    return relay.build(relay.Function([x], relay.nn.relu(x)), "llvm").report.opt_level


def test_a_build_outside_of_any_context_is_at_level_3_in_every_thread():
    assert level_of_a_build() == 3
    found = []
    thread = threading.Thread(target=lambda: found.append(level_of_a_build()))
    thread.start()
    thread.join()
    assert found == [3]


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_a_context_that_is_entered_decides_the_level(level):
    with tvm.transform.PassContext(opt_level=level):
        assert level_of_a_build() == level
    assert level_of_a_build() == 3


def test_batons_context_is_at_level_3_by_default():
    with compiler.PassContext(config={"baton.precision": "strict"}):
        assert level_of_a_build() == 3


def test_old_names_keep_the_level_of_tvm():
    with legacy.installed():
        assert level_of_a_build() == 2
        with relay.build_config():
            assert level_of_a_build() == 2
    assert level_of_a_build() == 3
    with relay.build_config():
        assert level_of_a_build() == 3


def test_optimize_simplifies_as_a_build_does():
    x, scale = relay.var("x", shape=(1, 4, 8, 8)), relay.const(np.full((4, 1, 1), 2, "float32"))
    conv = relay.nn.conv2d(x, relay.const(np.ones((4, 4, 1, 1), "float32")))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.multiply(conv, scale)))
    plain, _ = relay.optimize(mod)
    with tvm.transform.PassContext(opt_level=3):
        within, _ = relay.optimize(mod)
    tvm.ir.assert_structural_equal(plain, within)
    assert "multiply" not in plain.script()  # FoldScaleAxis, of level 3


def test_a_build_without_vectors_computes_the_same():
    weights = np.random.default_rng(0).standard_normal((16, 16, 3, 3)).astype("float32")
    x = relay.var("x", shape=(1, 16, 8, 8))
    mod = relay.Function([x], relay.nn.conv2d(x, relay.const(weights), padding=(1, 1)))
    feed = {"x": np.random.default_rng(1).standard_normal((1, 16, 8, 8)).astype("float32")}
    (plain,) = relay.build(mod, "llvm").session().run(feed).values()
    with tvm.transform.PassContext(opt_level=3, config={"tirx.disable_vectorize": True}):
        (scalar,) = relay.build(mod, "llvm").session().run(feed).values()
    np.testing.assert_allclose(scalar, plain, rtol=1e-4, atol=1e-4)


def test_the_old_switch_of_the_auto_scheduler_is_ignored_with_a_warning(caplog):
    config = {"relay.backend.use_auto_scheduler": True}
    with compiler.PassContext(opt_level=2, config=config):
        assert level_of_a_build() == 2
    assert "relay.backend.use_auto_scheduler is ignored: enter auto_scheduler" in caplog.text
