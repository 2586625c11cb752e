"""Which builds get a graph, and what their reports say; graphs run in `test_cuda_builds.py`."""

from __future__ import annotations

import numpy as np
import pytest
import tvm

from compiler import relay
from compiler.lowering.codegen import bulk_segments, cuda_graph, static_allocation, workspaces
from tests import cuda_mock

pytestmark = pytest.mark.skipif(cuda_mock.COMPILER is None, reason="needs a C compiler")


@pytest.fixture(scope="module", autouse=True)
def nvcc(tmp_path_factory):
    """One that makes empty device code; the mocked runtime beside it stays out of this process."""
    home = cuda_mock.make_home(tmp_path_factory.mktemp("cuda") / "home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{home / 'bin'}:/usr/bin:/bin")
        yield


def var(*shape, name="x", dtype="float32"):
    return relay.var(name, shape=shape, dtype=dtype)


def build(body, target="cuda -arch=sm_90", **context):
    mod = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body))
    with tvm.transform.PassContext(opt_level=3, **context):
        return relay.build(mod, target)


def functions(lib):
    return [line[1:-1] for line in lib.get_lib().as_text().splitlines() if line.startswith("@main")]


def test_a_build_for_cuda_has_a_graph_and_says_so():
    lib = build(relay.nn.softmax(relay.exp(var(4, 8))))
    assert lib.report.notes == ["launches are replayed as a CUDA graph"]
    assert "main_graph" in functions(lib)


def test_a_build_for_the_cpu_says_nothing_of_graphs():
    lib = build(relay.exp(var(4, 8)), "llvm")
    assert lib.report.notes == []
    assert "main_graph" not in functions(lib)


@pytest.mark.parametrize(
    ("context", "reason"),
    [
        ({"disabled_pass": [cuda_graph.NAME]}, "the PassContext switches it off"),
        ({"config": {"relax.backend.use_cuda_graph": False}}, "the PassContext switches it off"),
        ({"required_pass": [static_allocation.NAME]}, "the PassContext asks for another entry"),
        (
            {"required_pass": [bulk_segments.required_pass(2)]},
            "the PassContext asks for another entry",
        ),
    ],
)
def test_a_context_that_wants_none_gets_none(context, reason):
    lib = build(relay.nn.softmax(relay.exp(var(4, 8))), **context)
    assert lib.report.notes == [f"no CUDA graph: {reason}"]
    assert "main_graph" not in functions(lib)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (relay.exp(var(relay.Any(), 8)), "the shape of x is dynamic"),
        (
            relay.If(var(name="c", dtype="bool"), relay.exp(var(3)), relay.sin(var(3, name="y"))),
            "the branch taken is only known at run time",
        ),
    ],
)
def test_what_only_running_tells_is_not_captured(body, reason):
    lib = build(body)
    assert lib.report.notes == [f"no CUDA graph: {reason}"]
    assert "main_graph" not in functions(lib)


def test_several_results_are_copied_out_each():
    x = var(4, 8)
    lib = build(relay.Tuple([relay.exp(x), x, relay.sum(x)]))
    text = lib.get_lib().as_text()
    graph = text[text.index("@main_graph:") :].split("\n\n")[0]
    assert graph.count("call  copy_into_graph") == 4  # one input, three results


def test_what_a_product_in_parts_works_in_is_planned_memory():
    weights = np.ones((8, 4096), "float32")
    body = relay.nn.softmax(relay.nn.dense(var(2, 4096), relay.const(weights)))
    lowered = build(body).get_lib()
    text = lowered.as_text()
    main = text[text.index("@main:") :].split("\n\n")[0]
    (call,) = (line for line in main.splitlines() if "matmul" in line or "dense" in line)
    arguments = call.split("in: ")[1].split("dst:")[0]
    assert arguments.count("%") == 4  # data, weights, result, sums of the parts


def test_only_kernels_of_a_gpu_hand_their_memory_out():
    def kernel(target):
        x = tvm.te.placeholder((4,), "float32", "x")
        y = tvm.te.compute((4,), lambda i: tvm.tirx.exp(x[i]), "y")
        z = tvm.te.compute((4,), lambda i: y[3 - i], "z")
        return tvm.te.create_prim_func([x, z]).with_attr("target", tvm.target.Target(target))

    for target, parameters in (("llvm", 2), ({"kind": "cuda", "arch": "sm_90"}, 3)):
        lifted = workspaces.lift_workspaces(tvm.IRModule({"kernel": kernel(target)}))
        assert len(lifted["kernel"].params) == parameters
        assert workspaces.allocates(lifted["kernel"]) is (parameters == 2)
