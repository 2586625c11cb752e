"""`lib.get_source()` of a library that `relay.build` made: LLVM IR, as in TVM.

Baton keeps object code, so the text comes from building the module once more, without its caches,
in the contexts of the first build.
"""

from __future__ import annotations

import contextvars
from functools import partial
from typing import Any

import tvm
from tvm.ir.transform import PassContext

from ..lowering.codegen.compile_kernels import llvm_ir
from ..relay import build_module
from .patches import Patches

_new_build = build_module.lower_and_build


def _remembered(mod: Any, target: Any, *request: Any) -> Any:
    """`lower_and_build`, whose code remembers how to make its text."""
    library = _new_build(mod, target, *request)
    make = partial(_text, PassContext.current(), mod, target, *request)
    library.get_lib().baton_llvm_ir = partial(contextvars.copy_context().run, make)
    return library


def _text(passes: PassContext, mod: Any, target: Any, *request: Any) -> str:
    kernels: list[Any] = []

    @tvm.tirx.transform.prim_func_pass(opt_level=0, name="KeepKernels")
    def keep(function: Any, _mod: Any, _context: Any) -> Any:
        kernels.append(function)
        return function

    config = dict(passes.config)
    config["tirx.add_lower_pass"] = [*config.get("tirx.add_lower_pass", []), (0, keep)]
    chosen = {"required_pass": passes.required_pass, "disabled_pass": passes.disabled_pass}
    with PassContext(passes.opt_level, **chosen, config=config):
        _new_build(mod, target, *request)
    return "\n".join(llvm_ir(kernel, target) for kernel in kernels)


def change(patches: Patches) -> None:
    """Let libraries know their LLVM IR."""
    patches.set(build_module, "lower_and_build", _remembered)
