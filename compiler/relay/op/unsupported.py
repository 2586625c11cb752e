"""Registered but unsupported Relay operators, with reasons."""

from .registry import unavailable

_INTERNAL = "Relay's compiler made such calls while it compiled; no script or saved module has them"

for _name in (
    "call_lowered",
    "memory.alloc_storage",
    "memory.alloc_tensor",
    "memory.kill",
    "parser.MetaRef",
    "vm.invoke_tvm_op",
    "vm.reshape_tensor",
    "vm.shape_of",
):
    unavailable(_name, _INTERNAL)

for _name in (
    "contrib.ethosu.binary_elementwise",
    "contrib.ethosu.conv2d",
    "contrib.ethosu.depthwise_conv2d",
    "contrib.ethosu.identity",
    "contrib.ethosu.pooling",
    "contrib.ethosu.unary_elementwise",
):
    unavailable(_name, "it is an instruction of Arm's Ethos-U compiler, which TVM has removed")

for _name in ("hardswish", "scatter"):
    unavailable(_name, "Relay knew only the name, for attributes; it could not be computed either")

unavailable("debug", "it stopped Relay's interpreter, which is gone, in a debugger")
unavailable("torch_op", "it ran PyTorch inside a compiled module")
unavailable(
    "relay.op.annotation.simulated_quantize",
    "relay.quantize writes quantize and dequantize with scales instead",
)
unavailable(
    "meta_schedule_layout_transform", "MetaSchedule's layout rewriting of Relay made such calls"
)
unavailable(
    "auto_scheduler_layout_transform", "the auto_scheduler's layout rewriting made such calls"
)
