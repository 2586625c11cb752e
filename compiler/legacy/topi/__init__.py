"""`tvm.topi.generic`, `x86`, `arm_cpu` and `cuda`: schedules of TE, as scripts ask for them.

`schedule_<operator>` returns the schedule of `compiler.legacy.te.topi`. A compute is TOPI's own of
that name (`topi.cuda.conv2d_nchw`), or what it computes (`topi.x86.dense_pack`). Every other name
of those modules reports its replacement when it is used.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...target import parse
from ..module_map import PARTS
from ..patches import Patches
from ..removed_modules import Absent

_INSTEAD = (
    "the schedule library is in `schedules`, and relay.build chooses from it; "
    "compiler.legacy.te.topi schedules TOPI's computes"
)

# Computes that had separate names per schedule.
_SAME = {
    **dict.fromkeys(
        ("dense_dynamic", "dense_large_batch", "dense_nopack", "dense_pack", "dense_small_batch"),
        "dense",
    ),
    **dict.fromkeys(("conv2d_nchw_spatial_pack", "conv2d_nchw_winograd"), "conv2d_nchw"),
    **dict.fromkeys(("conv2d_nhwc_spatial_pack", "conv2d_nhwc_winograd"), "conv2d_nhwc"),
    "compute_depthwise_conv2d_nhwc": "depthwise_conv2d_nhwc",
    "conv3d_ncdhw_winograd": "conv3d_ncdhw",
    "depthwise_conv2d_nchw_spatial_pack": "depthwise_conv2d_nchw",
}


def names_of(module: str, gpu: bool | None, parallel: bool = True) -> Callable[[str], Any]:
    """The `__getattr__` of one of these modules.

    `module`: the name that scripts know it by. `gpu`: what its schedules are for; None takes the
    current target's word. `parallel`: False for schedules that leave the loops as they are
    declared.
    """

    def schedule(outs: Any, *_layout: Any, **_options: Any) -> Any:
        from ..te import topi

        on_gpu = topi.is_gpu() if gpu is None else gpu
        if not parallel and not on_gpu:
            return topi.schedule_default(outs)
        return topi.schedule_outputs(outs, on_gpu)

    def from_existing(sch: Any, out: Any) -> Any:
        from ..te import topi

        return topi.schedule_stage(sch, out.op, topi.is_gpu() if gpu is None else gpu)

    def __getattr__(name: str) -> Any:
        from tvm import topi

        if name.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        if f"{module}.{name}" in PARTS:
            return importlib.import_module(f"{module}.{name}")
        if name == "schedule_injective_from_existing":
            return from_existing
        if name.startswith("schedule_") or name == "default_schedule":
            return schedule
        for owner in (topi.nn, topi, topi.image, topi.vision):
            compute = getattr(owner, _SAME.get(name, name), None)
            if callable(compute) and type(compute) is not Absent:
                return compute
        return Absent(f"{module}.{name}", _INSTEAD)

    return __getattr__


def patch(patches: Patches) -> None:
    """Let `tvm.topi.testing` name the schedules of a target."""
    testing = sys.modules["tvm.topi.testing"]  # no attribute of topi while it is being imported
    for name in ("injective", "broadcast", "elemwise", "reduce"):
        patches.add(testing, f"get_{name}_schedule", _schedule_of)
    patches.add(testing, "get_conv2d_nchw_implement", _convolution_of)
    patches.add(testing, "dispatch", dispatch)
    patches.add(testing, "compare_numpy_tvm", compare_numpy_tvm)


def dispatch(target: Any, dispatch_map: Mapping[str, Any]) -> Any:
    """The entry of a map for the first key of a target that it has, else the generic one."""
    keys = [str(key) for key in parse(target).keys]
    return dispatch_map[next((key for key in keys if key in dispatch_map), "generic")]


def compare_numpy_tvm(
    inputs: Sequence[Any],
    output: Any,
    target: Any,
    device: Any,
    compute: Callable[..., Any],
    schedule: Callable[..., Any],
) -> None:
    """Assert that a compute under a schedule gives an array of numpy's for others."""
    import numpy as np
    import tvm
    from tvm import te

    from ..te.driver import build

    placeholders = [te.placeholder(each.shape, str(each.dtype)) for each in inputs]
    with tvm.target.Target(target):
        made = compute(*placeholders)
        library = build(schedule([made]), [*placeholders, made])
    result = tvm.runtime.tensor(np.zeros(output.shape, output.dtype), device)
    library(*(tvm.runtime.tensor(each, device) for each in inputs), result)
    np.testing.assert_allclose(result.numpy(), output, rtol=1e-4, atol=1e-4)


def _schedule_of(target: Any) -> Callable[[Any], Any]:
    """The function that schedules outputs for a target."""
    from ..te import topi

    gpu = topi.is_gpu(target)
    return lambda outs: topi.schedule_outputs(outs, gpu)


def _convolution_of(target: Any) -> tuple[Callable[..., Any], Callable[[Any], Any]]:
    """Compute and schedule of a convolution for a target."""
    from tvm import topi

    return topi.nn.conv2d_nchw, _schedule_of(target)
