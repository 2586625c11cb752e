"""Operations that can't be counted are unknown, wherever the count is read."""

import numpy as np
import pytest
import tvm
from tvm import relax

from compiler import auto_scheduler, autotvm, relay
from compiler.cli import compile as compiling
from compiler.cli import extract_tasks, profile
from compiler.errors import ScheduleError
from compiler.lowering.offloaded_functions import sum_if_known
from compiler.primfuncs import query
from compiler.runtime import graph_executor


@pytest.fixture
def uncountable(monkeypatch):
    """TVM's analysis gives up."""

    def give_up(_):
        raise tvm.TVMError("a loop of a data-dependent extent")

    monkeypatch.setattr(query, "estimate_tir_flops", give_up)
    monkeypatch.setenv("BATON_KERNEL_CACHE_BYTES", "0")


def product():
    builder = relax.BlockBuilder()
    x, w = (relax.Var(name, relax.TensorType((4, 4), "float32")) for name in "xw")
    with builder.function("main", [x, w]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.matmul(x, w))
        builder.emit_func_output(out)
    return builder.get()


def test_a_count_is_none_only_where_the_analysis_gives_up(uncountable):
    library = relay.build(product(), "llvm")
    report = library.report
    assert [kernel.flops for kernel in report.kernels] == [None] * len(report.kernels)
    assert "unknown" in str(report) and " 0.00 " not in str(report).partition("packed")[0]
    assert type(report).from_json(report.to_json()) == report
    assert sum_if_known([3, None]) is None and sum_if_known([3, 4]) == 7 and sum_if_known([]) == 0
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    ones = np.ones((4, 4), "float32")
    module.run(x=ones, w=ones)

    found = profile.profile_library(library, {"x": ones, "w": ones}, 1, "product")
    kernels = [kernel for kernel in found.kernels if kernel.name != profile.RUNTIME]
    assert kernels and all(profile.gflops_of(kernel) == "unknown" for kernel in kernels)


def test_tables_say_unknown(uncountable, capsys):
    compiling.show(compiling.kernel_table(relay.build(product(), "llvm").report))
    tasks, _ = auto_scheduler.extract_tasks(product(), {}, "llvm")
    assert [task.flop_ct for task in tasks] == [None]
    extract_tasks.show_extracted(extract_tasks.Extracted(tasks, []))
    assert tasks[0].gflops(1e-3) == "unknown" and tasks[0].gflops(float("inf")) == "-"
    assert capsys.readouterr().out.count("unknown") == 2


def test_a_template_must_say_what_can_not_be_counted(uncountable):
    @autotvm.template("test.uncounted")
    def uncounted(size):
        from tvm import te

        x = te.placeholder((size,), name="x")
        y = te.compute((size,), lambda i: x[i] * 2.0, name="y")
        from compiler.legacy import te as schedules

        return schedules.create_schedule(y.op), [x, y]

    with pytest.raises(ScheduleError, match="add_flop"):
        print(autotvm.task.create("test.uncounted", (12,), "llvm").flop)
