"""Scheduled TIR functions as kernels and launches, and their PTX in the interpreter."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize
from tvm.target import Target
from tvm.tirx.build import codegen_build, split_host_device_mods

from compiler.target import nvcc
from tests import ptx as interpreter

_DYNAMIC = "tirx.use_dyn_shared_memory"


@dataclass(frozen=True)
class Launch:
    """A launch of a kernel: its extents, bytes of dynamic shared memory, and buffers by name."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_shared: int
    buffers: tuple[str, ...]


class Scheduled:
    """A scheduled function: its CUDA source, its launches, its buffers.

    Parameters
    ----------
    func : tvm.tirx.PrimFunc
        Scheduled for a GPU, with static shapes.
    target : Target
        A CUDA target with a host; one for OpenCL has a source and launches, and no PTX.

    Attributes
    ----------
    source : str
        CUDA C, or OpenCL C, of all kernels.
    launches : list of Launch
        In their order.
    buffers : list
        The function's parameters and, behind them, its workspaces.
    num_params : int
    """

    def __init__(self, func: tirx.PrimFunc, target: Target) -> None:
        func, self.buffers, self.num_params = _expose_workspaces(func)
        self.arch = str(target.attrs.get("arch", ""))
        pipeline, _, finalize_device = tirx.get_tir_pipeline("default")
        module = tirx.transform.BindTarget(target)(tvm.IRModule({"kernel": func}))
        host, devices = split_host_device_mods(pipeline(module))
        ((device_target, device),) = devices.items()
        device = finalize_device()(device)
        self.source: str = codegen_build(device, device_target).inspect_source()
        self.launches = _launches(host, device)

    @cached_property
    def ptx(self) -> str:
        """What nvcc makes of the source."""
        return nvcc.compile_to_ptx(self.source, self.arch)

    def interpret(
        self,
        inputs: list[np.ndarray],
        ptx: str | None = None,
        launches: list[Launch] | None = None,
        races: bool = True,
    ) -> interpreter.Outcome:
        """Run all launches in the interpreter.

        Parameters
        ----------
        inputs
            Values of the first parameters. The others are outputs.
        ptx, launches
            What runs instead of `ptx` and `launches`: a mutant's.
        races
            Whether to look for races.

        Returns
        -------
        Outcome
            The outputs' values, and the problems and traffic of all launches.
        """
        names = [str(buffer.name) for buffer in self.buffers]
        known: dict[str, interpreter.Argument] = dict(zip(names, inputs, strict=False))
        written: dict[str, np.ndarray] = {}
        problems: list[interpreter.Problem] = []
        traffic = interpreter.Traffic()
        for launch in self.launches if launches is None else launches:
            arguments = [self._argument(name, known, written) for name in launch.buffers]
            outcome = interpreter.run(
                self.ptx if ptx is None else ptx,
                launch.kernel,
                launch.grid,
                launch.block,
                arguments,
                launch.dynamic_shared,
                races,
            )
            problems += outcome.problems
            traffic += outcome.traffic
            changed = [
                name
                for name, arg in zip(launch.buffers, arguments, strict=True)
                if not isinstance(arg, np.ndarray)
            ]
            written.update(zip(changed, outcome.outputs, strict=True))
        outputs = [written[name] for name in names[len(inputs) : self.num_params]]
        return interpreter.Outcome(outputs, problems, traffic)

    def _argument(
        self, name: str, known: dict[str, interpreter.Argument], written: dict[str, np.ndarray]
    ) -> interpreter.Argument:
        if name in known:
            return known[name]
        if name in written:
            return interpreter.Updated(written[name])
        buffer = next(buffer for buffer in self.buffers if str(buffer.name) == name)
        shape = tuple(int(extent) for extent in buffer.shape)
        return interpreter.Output(shape, str(buffer.dtype))


def _expose_workspaces(func: tirx.PrimFunc) -> tuple[tirx.PrimFunc, list, int]:
    """Make the global workspaces parameters, so that each kernel's arguments are parameters."""
    root = func.body.block
    workspaces = [buffer for buffer in root.alloc_buffers if buffer.scope() == "global"]
    kept = [buffer for buffer in root.alloc_buffers if buffer.scope() != "global"]
    block = SBlock([], root.reads, root.writes, root.name_hint, root.body, None, kept)
    params = [*func.params, *workspaces]
    names = [param.name for param in params]
    assert len(set(names)) == len(names), f"parameter names are not unique: {names}"
    exposed = tirx.PrimFunc(params, SBlockRealize([], True, block), func.ret_type, func.attrs)
    return exposed.with_attr("global_symbol", "kernel"), params, len(func.params)


def _launches(host: tvm.IRModule, device: tvm.IRModule) -> list[Launch]:
    params = {gvar.name_hint: func.params for gvar, func in device.functions.items()}
    found: list[Launch] = []

    def visit(call: tvm.ir.Call) -> None:
        if getattr(call.op, "name", "") != "tirx.call_ffi_kernel":
            return
        tags = [str(tag) for tag in call.attrs["launch_params"]]
        extents = dict(zip(tags, map(int, call.args[-len(tags) :]), strict=True))
        kernel = str(call.args[0].value)
        grid, block = (
            tuple(extents.get(f"{kind}.{axis}", 1) for axis in "xyz")
            for kind in ("blockIdx", "threadIdx")
        )
        buffers = tuple(str(param.name).removesuffix("_ptr") for param in params[kernel])
        found.append(Launch(kernel, grid, block, extents.get(_DYNAMIC, 0), buffers))

    for func in host.functions.values():
        tvm_ffi.structural_walk(func.body, (tvm.ir.Call, visit), order="pre")
    return found
