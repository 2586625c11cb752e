from __future__ import annotations

from tvm.relax.backend.gpu_generic.cumsum import gpu_2d_continuous_cumsum

from compiler.tvm_workarounds.scan_barriers import with_barriers


def test_each_read_of_a_neighbors_sum_is_between_two_barriers() -> None:
    """TVM's scan has two such reads in each of two kernels, and no barrier of a warp."""
    scan = gpu_2d_continuous_cumsum(in_dtype="float32")
    assert "barrier" not in scan.script()
    assert with_barriers(scan).script().count('func_call("baton_barrier_of_warp"') == 8
