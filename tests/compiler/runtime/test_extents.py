"""Every executor tells which input, axis and symbol has a wrong extent, and takes extents of 0."""

from __future__ import annotations

import numpy as np
import pytest
import tvm

from compiler import ort, relay
from compiler.errors import InputError
from compiler.runtime import graph_executor, load_module

EXECUTORS = ("GraphModule", "session", "relay.vm", "create_executor", "ort", "loaded")
WRONG = {
    "a known extent": ((2, 4), (2, 5), r"'x'.*\(2, 4\).*extent 4 along axis 1, expected 3"),
    "the rank": ((3,), (2, 5), r"'x'.*\(rows, 3\).*rank 1, expected 2"),
    "a symbol": ((2, 3), (3, 5), r"'y'.*3 along axis 0, expected 2: it is 'rows'.*axis 0.*'x'"),
    "a bound": ((5, 3), (5, 5), r"'x'.*extent 5 along axis 0, but 'rows' is at most 4"),
}


@pytest.fixture(scope="module")
def executors(tmp_path_factory):
    x, y = relay.var("x", shape=("rows", 3)), relay.var("y", shape=("rows", "columns"))
    body = relay.add(relay.sum(x, axis=1, keepdims=True), y)
    mod = relay.with_bounds(tvm.IRModule.from_expr(relay.Function([x, y], body)), {"rows": 4})
    library = relay.build(mod, "llvm")
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    session = library.session()
    machine = relay.vm.VirtualMachine(relay.vm.compile(mod, "llvm"), tvm.cpu())
    evaluated = relay.create_executor("graph", mod, tvm.cpu(), "llvm").evaluate()

    path = tmp_path_factory.mktemp("extents") / "library.so"
    library.export_library(path)
    served = ort.InferenceSession(path)
    loaded = load_module(path)["default"](tvm.cpu())

    def run_module(x, y):
        module.run(x=x, y=y)
        return module.get_output(0)

    def run_session(x, y):
        (result,) = session.run({"x": x, "y": y}).values()
        return tvm.runtime.tensor(result)

    def run_loaded(x, y):
        executor = graph_executor.GraphModule(loaded)
        executor.set_input("x", x)
        executor.set_input("y", y)
        executor.run()
        return executor.get_output(0)

    return dict(
        zip(
            EXECUTORS,
            (
                run_module,
                run_session,
                lambda x, y: machine.invoke("main", x, y),
                evaluated,
                lambda x, y: tvm.runtime.tensor(served.run(None, {"x": x, "y": y})[0]),
                run_loaded,
            ),
            strict=True,
        )
    )


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_wrong_extent_is_named(executors, executor, wrong):
    x, y, message = WRONG[wrong]
    with pytest.raises(InputError, match=message):
        executors[executor](floats(*x), floats(*y))


@pytest.mark.parametrize("executor", EXECUTORS)
def test_extents_of_zero_give_empty_results(executors, executor):
    run = executors[executor]
    assert run(floats(0, 3), floats(0, 5)).numpy().shape == (0, 5)
    assert run(floats(2, 3), floats(2, 0)).numpy().shape == (2, 0)
    x, y = floats(4, 3), floats(4, 2)
    np.testing.assert_allclose(run(x, y).numpy(), x.sum(1, keepdims=True) + y, rtol=1e-5)
