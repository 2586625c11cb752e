"""`tvm.contrib.torch`: kernels and compiled models as modules of PyTorch.

PyTorch hands tensors over by DLPack, so no library of TVM's is linked into it, and
`torch.jit.script` does not take these modules.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import tvm
from tvm.s_tir import meta_schedule as ms

from .. import relay
from ..errors import RelayError
from ..runtime import load_module
from .meta_schedule import TuneConfig

__all__ = ["as_torch", "optimize_torch"]


def as_torch(
    func: tvm.tirx.PrimFunc | tvm.IRModule | Callable[..., Any],
) -> torch.nn.Module | Callable[..., torch.nn.Module]:
    """A function of TVMScript, a module with one, or a maker of either, as a module of PyTorch.

    The module is called with the tensors of the function, and writes into the last; for a maker, a
    function of the maker's arguments that returns such a module.
    Raises RelayError: it is neither.
    """
    if isinstance(func, (tvm.tirx.PrimFunc, tvm.IRModule)):
        return _Kernel(func)
    if callable(func):

        @functools.wraps(func)
        def made(*args: Any, **kwargs: Any) -> torch.nn.Module:
            return _Kernel(func(*args, **kwargs))

        return made
    raise RelayError(f"as_torch takes TVMScript's functions and modules, not {type(func).__name__}")


class _Kernel(torch.nn.Module):
    """A compiled kernel; it is built when it is called first."""

    def __init__(self, function: tvm.tirx.PrimFunc | tvm.IRModule):
        super().__init__()
        if isinstance(function, tvm.tirx.PrimFunc):
            function = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
        self._module = function
        self._run: Any = None

    def tune(
        self,
        target: Any = "cpu",
        max_trials_global: int = 32,
        *,
        num_trials_per_iter: int = 32,
        **options: Any,
    ) -> None:
        """Search for a schedule with MetaSchedule, whose `tune_tir` takes the options."""
        if isinstance(target, TuneConfig):  # 0.10: tune(config, target)
            config, target = target, options.pop("target", "cpu")
            max_trials_global = config.max_trials_global
            num_trials_per_iter = config.num_trials_per_iter
        target = _target(target)
        with tempfile.TemporaryDirectory() as folder:
            database = ms.tir_integration.tune_tir(
                self._module,
                target,
                folder,
                max_trials_global,
                num_trials_per_iter=num_trials_per_iter,
                **options,
            )
            schedule = ms.tir_integration.compile_tir(database, self._module, target)
        if schedule is not None:  # no trial ran to its end: it stays as it is
            self._module = schedule.mod
        self.build(target)

    def build(self, target: Any = "cpu") -> None:
        """Compile it for a target."""
        built = tvm.compile(self._module, _target(target))
        self._run = built[next(iter(self._module.functions)).name_hint]

    def script(self) -> str:
        """The function as TVMScript."""
        return str(self._module.script())

    def forward(self, *tensors: torch.Tensor) -> None:
        """Call the kernel, which writes into its last tensor."""
        if self._run is None:
            self.build()
        self._run(*map(_shared, tensors))


def optimize_torch(
    func: Callable[..., Any],
    example_inputs: torch.Tensor | Sequence[torch.Tensor],
    tuning_config: TuneConfig | None = None,
    target: Any = "cpu",
    work_dir: str | Path | None = None,
    *,
    max_trials_global: int = 0,
    **options: Any,
) -> torch.nn.Module:
    """A model of PyTorch or a function of tensors, compiled for the shapes of example inputs.

    `tuning_config`: of 0.10: how many candidates to try. `work_dir`: keeps the search's log.
    `max_trials_global`: how many candidates to try in all; without any the kernels have Baton's own
    schedules. `**options`: of `meta_schedule.relay_integration.tune_relay`. The module has the same
    inputs and results; `torch.save` keeps its library.
    """
    examples = [example_inputs] if isinstance(example_inputs, torch.Tensor) else [*example_inputs]
    shapes = [(f"inp_{index}", each.shape) for index, each in enumerate(examples)]
    mod, params = relay.frontend.from_pytorch(torch.jit.trace(func, tuple(examples)), shapes)
    if tuning_config is not None:
        max_trials_global = tuning_config.max_trials_global
        options.setdefault("num_trials_per_iter", tuning_config.num_trials_per_iter)
    target = _target(target)
    if not max_trials_global:
        return _Library(relay.build(mod, target, params=params))
    with tempfile.TemporaryDirectory() as folder:
        database = ms.relay_integration.tune_relay(
            mod, params, target, work_dir or folder, max_trials_global, **options
        )
        return _Library(ms.relay_integration.compile_relay(database, mod, target, params))


class _Library(torch.nn.Module):
    """A compiled model."""

    def __init__(self, library: Any):
        super().__init__()
        self._open(library)

    def _open(self, library: Any) -> None:
        self._library = library
        self._session = library.session(num_threads=torch.get_num_threads())

    def forward(self, *tensors: torch.Tensor) -> Any:
        """The model's result, or a tuple of several."""
        names = [info.name for info in self._session.inputs]
        given = {name: tensor.detach().numpy() for name, tensor in zip(names, tensors)}
        results = tuple(torch.from_numpy(each) for each in self._session.run(given).values())
        return results[0] if len(results) == 1 else results

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for `torch.save`: the exported library."""
        state = {**self.__dict__}
        del state["_library"], state["_session"]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model.so")
            self._library.export_library(path)
            return {**state, "library": path.read_bytes()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        code = state.pop("library")
        self.__dict__.update(state)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model.so")
            path.write_bytes(code)
            self._open(load_module(path))


def _target(target: Any) -> Any:
    """A target, which TVM 0.18 called "cpu" where it was this machine."""
    if target in (None, "cpu"):
        target = {"kind": "llvm", "num-cores": ms.utils.cpu_count(logical=False)}
    return target if isinstance(target, tvm.target.Target) else tvm.target.Target(target)


def _shared(value: Any) -> Any:
    """A tensor of PyTorch as one of TVM in the same memory."""
    return tvm.runtime.from_dlpack(value.detach()) if isinstance(value, torch.Tensor) else value
