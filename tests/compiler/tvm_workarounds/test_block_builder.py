from __future__ import annotations

import threading

import pytest
import tvm
from tvm import relax

from compiler.tvm_workarounds.block_builder import BlockBuilder

SECONDS = 30.0


def built_at_once(builder_class):
    """Two functions of two threads, of which the first is closed while the second is open."""
    first_is_open, second_is_open, first_is_closed = (threading.Event() for _ in range(3))
    made: dict[str, object] = {}

    def build(name, before, opened, wait):
        x = relax.Var("x", relax.TensorType((2,), "float32"))
        builder = builder_class()
        assert before.wait(SECONDS)
        try:
            with builder.function(name, [x]):
                opened.set()
                wait.wait(SECONDS)
                builder.emit_func_output(builder.emit(relax.op.negative(x)))
            made[name] = builder.get()[name]
        except (AssertionError, RuntimeError) as error:
            made[name] = error
        first_is_closed.set()

    at_once = threading.Event()
    at_once.set()
    threads = [
        threading.Thread(target=build, args=("first", at_once, first_is_open, second_is_open)),
        threading.Thread(
            target=build, args=("second", first_is_open, second_is_open, first_is_closed)
        ),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return made


def test_threads_build_functions_at_once():
    made = built_at_once(BlockBuilder)
    assert all(isinstance(made[name], relax.Function) for name in ("first", "second")), made


def test_tvm_still_mixes_up_the_builders_of_threads(monkeypatch):
    monkeypatch.setattr(relax.BlockBuilder, "_stack", [])
    made = built_at_once(relax.BlockBuilder)
    assert isinstance(made["first"], (AssertionError, RuntimeError))


def test_functions_are_those_of_tvms_builder():
    def module(builder):
        n = tvm.tirx.Var("n", "int64")
        x = relax.Var("x", relax.TensorType((n, 2), "float32"))
        with builder.function("main", attrs={"kept": 1}):
            with builder.dataflow():
                parts = [builder.emit(relax.op.negative(x)), builder.emit(relax.op.exp(x))]
                out = builder.emit_output(relax.Tuple(parts))
            builder.emit_func_output([out, x], params=[x])
        return builder.get()

    tvm.ir.assert_structural_equal(module(BlockBuilder()), module(relax.BlockBuilder()))


def test_a_function_needs_its_output():
    builder = BlockBuilder()
    with (
        pytest.raises(RuntimeError, match="without emit_func_output"),
        builder.function("main", []),
    ):
        pass
