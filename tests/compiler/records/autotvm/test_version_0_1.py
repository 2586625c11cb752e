import json

import pytest

from compiler.errors import RecordError
from compiler.records.autotvm.record import decode
from schedules.config import SplitEntity

F32, I8 = "float32", "int8"
IMAGE, TAPS, DEEP = [1, 32, 8, 8, F32], [16, 32, 3, 3, F32], [32, 1, 3, 3, F32]
PACKED, PACKED_TAPS = [1, 2, 8, 8, 1, 16, I8], [1, 2, 3, 3, 16, 16, I8]
SPLIT_3, SPLIT_2 = ["tile_y", "sp", [1, 4, 8]], ["tile_y", "sp", [4, 8]]
WIDE, DEPTH = ["tile_x", "sp", [1, 1, 4, 8]], ["tile_k", "sp", [4, 8]]


def line(target, workload, template="direct", knobs=(SPLIT_2,), args=(), task="topi_nn_task"):
    row = [target, task, list(args), {}, workload,
           {"i": 7, "c": None, "t": template, "e": list(knobs)}]  # fmt: skip
    return json.dumps({"i": row, "r": [[2e-5], 0, 1.5, 1539972731.0], "v": 0.1})


def tensor(operand):
    *shape, dtype = operand
    return ("TENSOR", tuple(shape), dtype)


@pytest.mark.parametrize(
    "target, workload, template, task, rest",
    [
        # before convolutions had a dilation, and after
        ("llvm", ["conv2d_NCHWc", IMAGE, TAPS, [1, 1], [1, 1], "NCHW", "NCHW", F32], "",
         "conv2d_NCHWc.x86", ((1, 1), (1, 1, 1, 1), (1, 1), "NCHW", "NCHW", F32)),
        ("llvm", ["conv2d", IMAGE, TAPS, [1, 1], [1, 0], [2, 2], "NCHW", F32], "direct",
         "conv2d_NCHWc.x86", ((1, 1), (1, 0, 1, 0), (2, 2), "NCHW", "NCHW", F32)),
        ("llvm", ["depthwise_conv2d_nchw", IMAGE, DEEP, [1, 1], [1, 1], [1, 1], F32], "direct",
         "depthwise_conv2d_NCHWc.x86", ((1, 1), (1, 1, 1, 1), (1, 1), "NCHW", "NCHW", F32)),
        ("cuda -model=titanx", ["conv2d", IMAGE, TAPS, [1, 1], [1, 1], "NCHW", F32], "winograd",
         "conv2d_nchw_winograd.cuda", ((1, 1), (1, 1, 1, 1), (1, 1), F32)),
        ("cuda", ["conv2d", IMAGE, TAPS, [1, 1], [1, 2, 3, 4], [1, 1], "NCHW", F32], "direct",
         "conv2d_nchw.cuda", ((1, 1), (1, 2, 3, 4), (1, 1), F32)),
        ("cuda", ["group_conv2d_nchw", IMAGE, TAPS, [1, 1], [1, 1], [1, 1], 4, F32], "direct",
         "group_conv2d_nchw.cuda", ((1, 1), (1, 1, 1, 1), (1, 1), 4, F32)),
        ("cuda", ["conv2d_transpose_nchw", IMAGE, TAPS, [2, 2], [1, 1], F32], "direct",
         "conv2d_transpose_nchw.cuda", ((2, 2), (1, 1, 1, 1), F32, (0, 0), 1)),
        # devices that share the key "gpu" or "cpu" have tasks of their own, or those of that key
        ("rocm -model=gfx900", ["conv2d", IMAGE, TAPS, [1, 1], [0, 0], [1, 1], "NCHW", F32],
         "direct", "conv2d_nchw.cuda", ((1, 1), (0, 0, 0, 0), (1, 1), F32)),
        ("opencl -device=mali", ["conv2d", IMAGE, TAPS, [1, 1], [0, 0], "NCHW", F32], "direct",
         "conv2d_nchw_spatial_pack.mali", ((1, 1), (0, 0, 0, 0), (1, 1), F32)),
        ("opencl -device=intel_graphics",
         ["conv2d_NCHWc", IMAGE, TAPS, [1, 1], [0, 0], "NCHW", F32], "",
         "conv2d_NCHWc.intel_graphics", ((1, 1), (0, 0, 0, 0), (1, 1), "NCHW", "NCHW", F32)),
        ("ext_dev -device=vta -keys=cpu",
         ["conv2d", PACKED, PACKED_TAPS, [1, 1], [1, 1], [1, 1], "NCHW1n16c", "int32"], "direct",
         "conv2d_packed.vta", ((1, 1), (1, 1, 1, 1), (1, 1), "NCHW1n16c", "int32")),
        ("llvm -device=arm_cpu -target=aarch64-linux-gnu",
         ["depthwise_conv2d_nchw", IMAGE, DEEP, [1, 1], [1, 1], F32], "direct",
         "depthwise_conv2d_nchw.arm_cpu", ((1, 1), (1, 1, 1, 1), (1, 1), F32)),
    ],
)  # fmt: skip
def test_convolution_becomes_the_task_and_arguments_of_version_0_2(
    target, workload, template, task, rest
):
    inp, result = decode(line(target, workload, template))
    assert inp.task.workload == (task, tensor(workload[1]), tensor(workload[2]), *rest)
    assert inp.config["tile_y"] == SplitEntity((4, 8))
    assert result.costs == (2e-5,)


@pytest.mark.parametrize(
    "target, template, knobs, task",
    [
        ("llvm -mcpu=core-avx2", "direct", [SPLIT_3, DEPTH], "dense_pack.x86"),
        ("llvm -mcpu=core-avx2", "direct", [SPLIT_2, DEPTH], "dense_nopack.x86"),
        ("llvm", "direct_pack", [SPLIT_3], "dense_pack.x86"),
        ("cuda -model=unknown", "direct", [DEPTH], "dense_small_batch.gpu"),
        ("cuda -model=unknown", "direct", [WIDE, DEPTH], "dense_large_batch.gpu"),
    ],
)
def test_dense_is_told_by_the_knobs_of_the_template_that_was_chosen(target, template, knobs, task):
    inp, _ = decode(line(target, ["dense", [1, 64, F32], [8, 64, F32], 0, F32], template, knobs))
    assert inp.task.workload == (task, tensor([1, 64, F32]), tensor([8, 64, F32]), None, F32)


def test_dense_of_mali_keeps_its_bias_and_lacks_what_was_not_logged():
    old = line("opencl -device=mali", ["dense", [1, 64, F32], [8, 64, F32], [8, F32]])
    assert decode(old)[0].task.args[2:] == (tensor([8, F32]), None)


def test_batch_matmul_gets_the_arguments_that_it_lacks():
    old = line("llvm", ["batch_matmul", [2, 4, 8, F32], [2, 6, 8, F32]])
    assert decode(old)[0].task.args[2:] == ((2, 4, 6), F32, 0, 1)


def test_task_of_a_user_keeps_its_name_and_arguments():
    args = [1, 7, 512, [1, 1]]
    old = line("cuda", ["conv2d_no_batching", *args], "", args=args, task="conv2d_no_batching")
    assert decode(old)[0].task.workload == ("conv2d_no_batching", 1, 7, 512, (1, 1))


def test_template_without_successor_and_cut_off_workload_are_refused_by_name():
    with pytest.raises(RecordError, match="topi_nn_odd"):
        decode(line("llvm", ["odd", IMAGE, TAPS, [1, 1], [1, 1], F32], task="topi_nn_odd"))
    with pytest.raises(RecordError, match="lacks fields"):
        decode(line("llvm", ["conv2d", IMAGE]))
