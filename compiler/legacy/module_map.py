"""Where the modules of TVM 0.18 are today, and what to use instead of those that are gone."""

from __future__ import annotations

from . import module_aliases

# A module's old name and the name of its replacement. Submodules follow their
# package: `tvm.relay.testing` is `compiler.relay.testing`.
MOVED = {
    **module_aliases.MODULES,
    "tvm.arith": "tvm.sym",
    "tvm.auto_scheduler": "compiler.auto_scheduler",
    "tvm.autotvm": "compiler.autotvm",
    "tvm.container": "compiler.legacy.container",
    "tvm.contrib.cc": "tvm.support.cc",
    "tvm.contrib.clang": "tvm.support.clang",
    "tvm.contrib.debugger": "compiler.runtime.debugger",
    "tvm.contrib.debugger.debug_runtime": "compiler.runtime.debugger.debug_executor",
    "tvm.contrib.emcc": "tvm.support.emcc",
    "tvm.contrib.graph_executor": "compiler.runtime.graph_executor",
    "tvm.contrib.graph_runtime": "compiler.runtime.graph_executor",
    "tvm.contrib.mkldnn": "tvm.contrib.dnnl",
    "tvm.contrib.ndk": "tvm.support.ndk",
    "tvm.contrib.nvcc": "tvm.support.nvcc",
    "tvm.contrib.popen_pool": "tvm.support.popen_pool",
    "tvm.contrib.relay_viz": "compiler.relay.viz",
    "tvm.contrib.rocm": "tvm.support.rocm",
    "tvm.contrib.rpc": "tvm.rpc",
    "tvm.contrib.tar": "tvm.support.tar",
    "tvm.contrib.sparse": "compiler.legacy.te.sparse",
    "tvm.contrib.target": "compiler.legacy.contrib_target",
    "tvm.contrib.tedd": "compiler.legacy.te.pictures",
    "tvm.contrib.torch": "compiler.legacy.torch_modules",
    **dict.fromkeys(("tvm.contrib.util", "tvm.contrib.utils"), "tvm.support.utils"),
    "tvm.contrib.xcode": "tvm.support.xcode",
    "tvm.dlight": "tvm.s_tir.dlight",
    "tvm.driver.tvmc": "compiler.cli.tvmc",
    "tvm._ffi": "compiler.legacy.ffi",
    "tvm._ffi.base": "compiler.legacy.ffi",
    "tvm._ffi.libinfo": "compiler.legacy.libinfo",
    "tvm._ffi.registry": "compiler.legacy.ffi",
    **dict.fromkeys(
        ("tvm.autotvm.measure.measure", "tvm.autotvm.measure.measure_methods"),
        "compiler.autotvm.measure",
    ),
    "tvm.autotvm.task.dispatcher": "compiler.records.autotvm.dispatcher",
    "tvm.autotvm.task.space": "compiler.autotvm.space",
    "tvm.autotvm.task.task": "compiler.autotvm.task",
    "tvm.autotvm.tuner.callback": "compiler.autotvm.callback",
    **dict.fromkeys(("tvm.autotvm.util", "tvm.autotvm.utils"), "tvm.topi.utils"),
    **dict.fromkeys(
        ("tvm.auto_scheduler.measure", "tvm.auto_scheduler.search_task"), "compiler.auto_scheduler"
    ),
    **dict.fromkeys(
        ("tvm.auto_scheduler.cost_model", "tvm.auto_scheduler.search_policy"),
        "compiler.auto_scheduler.search.policy",
    ),
    **dict.fromkeys(
        (
            "tvm.auto_scheduler.cost_model.cost_model",
            "tvm.auto_scheduler.cost_model.xgb_model",
        ),
        "compiler.auto_scheduler.search.policy",
    ),
    "tvm.auto_scheduler.measure_record": "compiler.auto_scheduler.reader",
    "tvm.auto_scheduler.dispatcher": "compiler.records.auto_scheduler.dispatcher",
    "tvm.auto_scheduler.task_scheduler": "compiler.auto_scheduler.search.scheduler",
    "tvm.auto_scheduler.utils": "compiler.auto_scheduler.workload_keys",
    **dict.fromkeys(("tvm.ir.adt", "tvm.ir.tensor_type", "tvm.ir.type_relation"), "compiler.relay"),
    "tvm.ir.affine_type": "compiler.relay.op.affine_type",
    "tvm.ir.container": "compiler.legacy.container",
    "tvm.ir.diagnostics": "compiler.legacy.diagnostics",
    "tvm.meta_schedule": "tvm.s_tir.meta_schedule",
    "tvm.meta_schedule.relay_integration": "compiler.auto_scheduler.tune_relay",
    "tvm.module": "compiler.legacy.module",
    "tvm.nd": "compiler.legacy.nd",
    "tvm.parser": "compiler.legacy.parser",
    "tvm.relay": "compiler.relay",
    "tvm.relay.analysis.analysis": "compiler.relay.analysis",
    "tvm.relay.backend.compile_engine": "compiler.relay.backend.te_compiler",
    "tvm.relay.backend.graph_runtime_codegen": "compiler.relay.backend.graph_executor_codegen",
    "tvm.relay.backend.graph_runtime_factory": "compiler.relay.backend.executor_factory",
    "tvm.relay.backend.executor": "compiler.relay.backend.options",
    "tvm.relay.backend.runtime": "compiler.relay.backend.options",
    "tvm.relay.backend.vm": "compiler.relay.vm",
    "tvm.relay.frontend.common": "compiler.relay.frontend.inference",
    **{
        f"tvm.relax.backend.contrib.{name}": f"tvm.relax.backend.cuda.{name}"
        for name in ("cublas", "cudnn", "cutlass")
    },
    "tvm.relay.param_dict": "compiler.relay",
    "tvm.relay.parser": "compiler.relay.text",
    **dict.fromkeys(("tvm.relay.qnn.op", "tvm.relay.qnn.op.qnn"), "compiler.relay.op.qnn"),
    "tvm.relay.qnn.transform": "compiler.relay.transform.qnn",
    **dict.fromkeys(
        ("tvm.runtime.executor", "tvm.runtime.executor.aot_executor"),
        "compiler.legacy.aot_executor",
    ),
    "tvm.runtime.container": "compiler.legacy.container",
    "tvm.runtime.ndarray": "compiler.legacy.nd",
    **dict.fromkeys(("tvm.hybrid", "tvm.te.hybrid"), "compiler.legacy.te.hybrid"),
    "tvm.te.schedule": "compiler.legacy.te.schedule",
    **dict.fromkeys(("tvm.script.tir", "tvm.script.parser.tir"), "tvm.tirx.script"),
    "tvm.testing.plugin": "compiler.legacy.testing_plugin",
    "tvm.tir": "compiler.legacy.tir",
    **{f"tvm.tir.{each}": f"tvm.s_tir.{each}" for each in ("schedule", "tensor_intrin")},
    "tvm.tir.analysis": "compiler.legacy.tir_analysis",
    "tvm.tir.transform": "compiler.legacy.tir_transform",
    **{
        f"tvm.tir.{each}": f"tvm.tirx.{each}"
        for each in ("buffer", "expr", "function", "op", "stmt")
    },
    **{
        f"tvm.topi.{each}": f"compiler.legacy.topi.{each}"
        for each in (
            *("adreno", "arm_cpu", "bifrost", "cuda", "generic", "hls"),
            *("intel_graphics", "mali", "random", "rocm", "x86"),
        )
    },
    **dict.fromkeys(("tvm.topi.x86.util", "tvm.topi.x86.utils"), "compiler.legacy.topi.x86"),
    **dict.fromkeys(("tvm.topi.sparse", "tvm.topi.sparse.utils"), "compiler.legacy.te.sparse"),
    "tvm.topi.nn.util": "tvm.topi.nn.utils",
    "tvm.topi.util": "tvm.topi.utils",
    "tvm.topi.vision.rcnn": "tvm.topi.vision",
    "tvm.topi.vision.ssd": "tvm.topi.vision",
    "tvm.tir.ir_builder": "compiler.legacy.ir_builder",
    "tvm.tir.stmt_functor": "compiler.legacy.stmt_functor",
}

# TVM's own modules that lost names, and the modules whose `patch` brings these back.
EXTENDED = {
    "tvm.contrib.tvmjs": "compiler.legacy.tvmjs",
    "tvm.rpc": "compiler.legacy.rpc",
    "tvm.s_tir.meta_schedule": "compiler.legacy.meta_schedule",
    "tvm.testing": "compiler.legacy.testing",
    "tvm.topi": "compiler.legacy.topi.aliases",
    "tvm.topi.gpu": "compiler.legacy.topi.gpu",
    "tvm.topi.testing": "compiler.legacy.topi",
}

# Gone for good, with the way to go.
GONE = {
    "tvm.contrib.pipeline_executor": (
        "build each part with relay.build and call the libraries in turn"
    ),
    "tvm.contrib.pipeline_executor_build": (
        "build each part with relay.build and call the libraries in turn"
    ),
    "tvm.contrib.msc": "import the model with relay.frontend, and build it with relay.build",
    "tvm.contrib.micro": "microTVM has no successor; build with target 'c' for its source",
    "tvm.micro": "microTVM has no successor; build with target 'c' for its source",
    **dict.fromkeys(
        ("tvm.relay.testing.darknet", "tvm.relay.testing.yolo_detection"),
        "export the Darknet network as ONNX, and import that",
    ),
    **dict.fromkeys(
        ("tvm.relay.testing.tf", "tvm.relay.testing.tflite"),
        "use TensorFlow's own tools, and import a TFLite or an ONNX model",
    ),
    "tvm.relay.backend.contrib": (
        "UMA went with Relay; compiler.partition.Backend claims operators and compiles them"
    ),
    "tvm.autotvm.graph_tuner": (
        "builds choose layouts themselves; apply_graph_best applies a log it wrote"
    ),
    "tvm.relay.collage": "claim operators with compiler.partition's backends instead",
    **dict.fromkeys(
        ("tvm.relay.op.contrib.ethosn", "tvm.relay.op.contrib.ethosu"),
        "no backend for Arm Ethos is left; the CPU runs the model",
    ),
    **dict.fromkeys(
        ("tvm.relay.op.contrib.cmsisnn", "tvm.relay.op.contrib.vitis_ai"),
        "no such backend is left; claim operators with compiler.partition's backends",
    ),
    "nnvm": "NNVM ended with TVM 0.6: relay.frontend imports the model, relay.build compiles it",
    "vta": "the VTA accelerator has no successor in TVM",
}

# Gone as well, but imported by scripts that need nothing of them: their names refuse when used.
ABSENT = {
    **dict.fromkeys(
        ("tvm.contrib.sdaccel", "tvm.contrib.spirv"), "TVM has no code generator for it any more"
    ),
    "tvm.contrib.target.coreml": "TVM has no code generator for it any more",
    "tvm.contrib.tflite_runtime": "relay.frontend.from_tflite imports the model",
    **dict.fromkeys(
        (f"tvm.contrib.{each}" for each in ("cuda_graph", "miopen", "mps", "peak", "rocblas")),
        "relay.build makes the kernels, and baton profile times them",
    ),
    "tvm.autotvm.database": "a log file keeps records: autotvm.callback.log_to_file",
    "tvm.autotvm.feature": "XGBTuner computes the features of kernels' loops itself",
    "tvm.autotvm.measure.executor": "LocalBuilder and LocalRunner have worker processes",
    "tvm.auto_scheduler._ffi_api": (
        "sketches come from TVM's MetaSchedule; register a tvm.s_tir.meta_schedule.ScheduleRule"
    ),
    "tvm.relay.quantize._annotate": "relay.quantize.quantize annotates by its own rules",
    "tvm.relay.qnn.op.canonicalizations": "relay.qnn.transform.CanonicalizeOps does that work",
    "tvm.relay.qnn.op.legalizations": "relay.qnn.transform.CanonicalizeOps does that work",
    "tvm.relay.transform.infer_layout_utils": (
        "relay.transform.ConvertLayout knows which operators take which layouts"
    ),
    "tvm.relay.op.strategy": "relay.op.OpStrategy says how operators of one's own are computed",
    "tvm.runtime.profiler_vm": "tvm.contrib.debugger.debug_executor times the kernels",
    "tvm.target.datatype": "TVM has no custom datatypes any more; compute in one of its own",
    "tvm.contrib.ethosu": "no backend for Arm Ethos is left; the CPU runs the model",
    "tvm.contrib.mrvl": "claim operators with compiler.partition's backends instead",
    "tvm.contrib.mxnet": "relay.frontend.from_mxnet imports the model",
    "tvm.contrib.stackvm": "TVM has no such virtual machine any more; build for llvm",
    "tvm.contrib.tf_op": "TVM has no TensorFlow operators any more; call the library from Python",
    **dict.fromkeys(
        ("tvm.runtime.name_transforms", "tvm.testing.aot", "tvm.testing.usmp"),
        "microTVM has no successor; build with target 'c' for its source",
    ),
    "tvm.runtime.object_path": "tvm_ffi.access_path has paths into objects",
    "tvm.runtime.profiling": "tvm.contrib.debugger.debug_executor times the kernels",
    "tvm.target.compilation_config": "relay.build takes target and target_host",
    "tvm.target.virtual_device": "relay.annotation.on_device places an expression on a device",
    **dict.fromkeys(
        ("tvm.testing.auto_scheduler", "tvm.testing.autotvm"),
        "it held workloads of TVM's own tests; define the workload in the script",
    ),
    "tvm.topi.generic_op_impl": "operators on tensors are those of tvm.te",
    "tvm.topi.hexagon": "no schedules for Hexagon are left; relay.build uses the generic rules",
    "tvm.utils": "baton profile times the kernels",
    "tvm.ir.memory_pools": "the build plans memory itself, in one pool",
    # With a dot at the end: what is below a module that is there.
    "tvm.topi.cuda.": "schedules.cuda holds the CUDA schedules, chosen by relay.build",
    "tvm.topi.generic.": "schedules.generic holds the generic schedules, chosen by relay.build",
    "tvm.topi.x86.": "schedules.x86 holds the x86 schedules, chosen by relay.build",
    "tvm.topi.arm_cpu.": "relay.build schedules Arm kernels by the generic rules",
}

MXNET = {
    "mxnet": "compiler.mxnet",
    "mxnet._deferred_compute": "compiler.mxnet.array.deferred",
    "mxnet.context": "compiler.mxnet.device",
    **dict.fromkeys(
        ("mxnet.gluon.block", "mxnet.gluon.parameter"),
        "compiler.mxnet.gluon",
    ),
    "mxnet.gluon.contrib.nn": "compiler.mxnet.gluon.nn",
    "mxnet.init": "compiler.mxnet.initializer",
    "mxnet.ndarray": "compiler.mxnet.nd",
    **dict.fromkeys(("mxnet.nd.sparse", "mxnet.ndarray.sparse"), "compiler.mxnet.sparse"),
    "mxnet.numpy": "compiler.mxnet.np",
    "mxnet.numpy_extension": "compiler.mxnet.npx",
    "mxnet.sym": "compiler.mxnet.symbol",
}
"""Modules of MXNet whose names are on under `baton run`."""
