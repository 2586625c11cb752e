"""Modules that TVM's packages once had their names from, where the package itself has them today.

`from tvm.autotvm.tuner.xgboost_tuner import XGBTuner` is `from tvm.autotvm.tuner import XGBTuner`.
"""

from __future__ import annotations

# Modules of computes and schedules, of which the package has the names. A compute of TOPI that has
# a module's name (`topi.nn.conv2d`) is not meant, and `batch_matmul` is the compute.
_CONVOLUTIONS = "conv2d conv2d_transpose dense depthwise_conv2d injective"
_MORE = "conv1d conv3d group_conv2d pooling reduction sparse"
_SCHEDULES = {
    "generic": "conv2d default extern image injective math nn search sort sparse vision",
    "x86": f"{_CONVOLUTIONS} {_MORE} conv2d_int8 conv3d_transpose nn roi_align"
    " conv2d_avx_1x1 conv2d_avx_common",
    "arm_cpu": f"{_CONVOLUTIONS} conv1d group_conv2d pooling reduction",
    "cuda": f"{_CONVOLUTIONS} {_MORE} conv2d_nhwc conv3d_transpose_ncdhw nn softmax vision",
}

# Package, the module that stands for it, and which modules of it stand for nothing else. A module
# of a function's name (`tvm.relay.quantize.quantize`) would take the function's place.
_PARTS = (
    ("tvm.auto_scheduler", "compiler.auto_scheduler", "auto_schedule relay_integration"),
    ("tvm.autotvm.task", "compiler.autotvm.task", "relay_integration topi_integration"),
    ("tvm.autotvm.tuner", "compiler.autotvm.tuner", "index_based_tuner tuner xgboost_tuner"),
    ("tvm.contrib.torch", "compiler.legacy.torch_modules", "module pytorch_tvm"),
    ("tvm.relax", "tvm.relax", "struct_info"),
    ("tvm.relay.analysis", "compiler.relay.analysis", "analysis"),
    ("tvm.relay.op.annotation", "compiler.relay.op.annotation", "annotation"),
    ("tvm.relay.op.image", "compiler.relay.op.image", "image"),
    ("tvm.relay.op.nn", "compiler.relay.op.nn", "nn"),
    ("tvm.relay.op.random", "compiler.relay.op.random", "kernel"),
    ("tvm.relay.op.vision", "compiler.relay.op.vision", "multibox nms rcnn yolo"),
    ("tvm.relay.transform", "compiler.relay.transform", "transform"),
    ("tvm.runtime", "tvm.runtime", "object packed_func"),
    ("tvm.te", "tvm.te", "autodiff tensor_intrin"),
    ("tvm.tir", "compiler.legacy.tir", "block_scope data_layout generic"),
    ("tvm.tir.analysis", "compiler.legacy.tir_analysis", "analysis"),
    ("tvm.tir.transform", "compiler.legacy.tir_transform", "function_pass transform"),
    ("tvm.topi.vision", "tvm.topi.vision", "rcnn ssd"),
    *(
        (f"tvm.topi.{package}", f"compiler.legacy.topi.{package}", parts)
        for package, parts in _SCHEDULES.items()
    ),
)

MODULES = {f"{package}.{part}": today for package, today, parts in _PARTS for part in parts.split()}
