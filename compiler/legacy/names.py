"""Where the modules of TVM 0.18 are today, and what to use instead of those that are gone."""

from __future__ import annotations

# A module's old name and the name of the module that stands for it. Submodules follow their
# package: `tvm.relay.testing` is `compiler.relay.testing`.
MOVED = {
    "tvm.arith": "tvm.sym",
    "tvm.auto_scheduler": "compiler.auto_scheduler",
    "tvm.autotvm": "compiler.autotvm",
    "tvm.contrib.cc": "tvm.support.cc",
    "tvm.contrib.clang": "tvm.support.clang",
    "tvm.contrib.emcc": "tvm.support.emcc",
    "tvm.contrib.graph_executor": "compiler.runtime.graph_executor",
    "tvm.contrib.graph_runtime": "compiler.runtime.graph_executor",
    "tvm.contrib.ndk": "tvm.support.ndk",
    "tvm.contrib.nvcc": "tvm.support.nvcc",
    "tvm.contrib.popen_pool": "tvm.support.popen_pool",
    "tvm.contrib.rocm": "tvm.support.rocm",
    "tvm.contrib.tar": "tvm.support.tar",
    "tvm.contrib.utils": "tvm.support.utils",
    "tvm.contrib.xcode": "tvm.support.xcode",
    "tvm._ffi": "compiler.legacy.ffi",
    "tvm.meta_schedule": "tvm.s_tir.meta_schedule",
    "tvm.nd": "compiler.legacy.nd",
    "tvm.parser": "compiler.legacy.parser",
    "tvm.relay": "compiler.relay",
    "tvm.runtime.ndarray": "compiler.legacy.nd",
    "tvm.tir": "compiler.legacy.tir",
}

# Gone for good, with the way to go.
GONE = {
    "tvm.contrib.pipeline_executor": (
        "build each part with relay.build and call the libraries in turn"
    ),
    "tvm.contrib.pipeline_executor_build": (
        "build each part with relay.build and call the libraries in turn"
    ),
    "tvm.contrib.relay_viz": (
        "`baton partition MODEL --html out.html` draws a model with its subgraphs"
    ),
    "tvm.contrib.micro": "microTVM has no successor; build with target 'c' for its source",
    "tvm.driver.tvmc": "the commands of `baton` do its work: baton compile, run, tune",
    "tvm.micro": "microTVM has no successor; build with target 'c' for its source",
    "tvm.relay.quantize": (
        "quantise before import, for example with onnxruntime, and build the quantised model"
    ),
    "tvm.relay.collage": "claim operators with compiler.partition's backends instead",
    "tvm.relay.op.contrib.ethosu": "no backend for Arm Ethos is left; the CPU runs the model",
    "tvm.topi.cuda": "schedules.cuda holds the CUDA schedules, chosen by relay.build",
    "tvm.topi.generic": "schedules.generic holds the generic schedules, chosen by relay.build",
    "tvm.topi.x86": "schedules.x86 holds the x86 schedules, chosen by relay.build",
    "tvm.topi.arm_cpu": "relay.build schedules Arm kernels by the generic rules",
    "vta": "the VTA accelerator has no successor in TVM",
}
