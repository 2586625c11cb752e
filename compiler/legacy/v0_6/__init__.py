"""Names that only TVM 0.6 and older had: `tvm.var`, `tvm.placeholder`, `relay.Module`, `topi`.

TVM 0.7 moved them to `tvm.te`, `tvm.tir` and their kin, where `compiler.legacy` has them for all
eras. They are on for scripts that use one of them (`is_of_the_era`), or by `baton run --era 0.6`.
"""

from __future__ import annotations

import ast
import importlib
from typing import Any

import tvm

from schedules.space import ConfigSpace

from ..patches import Patches

# The module of TVM 0.7 to which names of `tvm` moved.
_TE = """placeholder compute scan extern reduce_axis thread_axis create_schedule decl_tensor_intrin
comm_reducer var size_var tag_scope sum min max any all min_value max_value div indexdiv indexmod
truncdiv truncmod floordiv floormod exp erf tanh sigmoid log cos sin atan sqrt rsqrt floor ceil
trunc abs round nearbyint isnan power popcount fmod if_then_else trace"""
_TIR = """const decl_buffer layout bijective_layout call_packed call_intrin call_pure_intrin
call_extern call_pure_extern call_llvm_intrin"""
_NAMES = {
    **dict.fromkeys(_TE.split(), "tvm.te"),
    **dict.fromkeys(_TIR.split(), "tvm.tir"),
    **dict.fromkeys(("Module", "load_json", "save_json", "make_node"), "tvm.ir"),
    **dict.fromkeys(("build_config", "register_intrin_rule"), f"{__name__}.build"),
    "convert": "tvm.runtime",
    "select": "tvm.tir",
}
_RENAMED = {"select": "Select", "Module": "IRModule"}
_DTYPES = (*(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),)
_DTYPES += ("bool", "float16", "float32", "float64", "handle")

# TVM 0.6 module names and their replacements.
MOVED = {
    "topi": "tvm.topi",
    "topi.util": "tvm.topi.utils",
    **{
        f"topi.{target}": f"compiler.legacy.topi.{target}"
        for target in ("arm_cpu", "cuda", "generic", "x86")
    },
    **dict.fromkeys(("tvm.expr", "tvm.stmt", "tvm.intrin"), "compiler.legacy.tir"),
    "topi.x86.util": "compiler.legacy.topi.x86",
    "tvm._ffi.function": "compiler.legacy.ffi",
    "tvm.api": f"{__name__}.api",
    "tvm.build_module": f"{__name__}.build",
    "tvm.codegen": "compiler.legacy.module",
    "tvm.ir_builder": "compiler.legacy.ir_builder",
    "tvm.ir_pass": f"{__name__}.ir_pass",
    "tvm.make": f"{__name__}.make",
    "tvm.ndarray": "compiler.legacy.nd",
    "tvm.relay.ir_pass": f"{__name__}.relay_pass",
    "tvm.relay.module": "tvm.ir",
    "tvm.relay.param_dict": "compiler.relay.saved",
    "tvm.schedule": "compiler.legacy.te.schedule",
    "tvm.tensor": "tvm.te.tensor",
}


_PASSES = ("ModulePass", "Pass", "PassContext", "PassInfo", "PrintIR", "Sequential", "module_pass")
# Names that `tvm.relay` had then.
_RELAY = {
    *("Module", "alpha_equal", "build_module.build_config", "ir_pass", "module"),
    *(f"transform.{name}" for name in _PASSES),
}


def find(name: str) -> Any:
    """Attribute `tvm.<name>` of TVM 0.6. Raises AttributeError: TVM 0.6 had no such name."""
    if name in _DTYPES:
        return name
    if name not in _NAMES:
        raise AttributeError(f"module 'tvm' has no attribute {name!r}")
    return getattr(importlib.import_module(_NAMES[name]), _RENAMED.get(name, name))


def change(patches: Patches) -> None:
    """Have functions return what they did, and give Relay the names that it lost."""
    from ... import relay
    from . import build, operators, space

    for owner in (tvm, tvm.driver):
        patches.set(owner, "lower", build.lower)
    for owner in (relay, tvm.ir):
        patches.set(owner, "Module", tvm.IRModule)
    for name in ("ir_pass", "module"):
        patches.set(relay, name, importlib.import_module(MOVED[f"tvm.relay.{name}"]))
    patches.set(ConfigSpace, "get", space.get)
    for owner in (relay.op, relay.op.op):
        patches.set(owner, "register_alter_op_layout", operators.register_alter_op_layout)
    for name in _PASSES:
        patches.set(relay.transform, name, getattr(tvm.transform, name))
    patches.set(relay.build_module, "build_config", relay.build_config)
    for owner in (relay, relay.analysis):
        patches.set(owner, "alpha_equal", tvm.ir.structural_equal)


def is_of_the_era(source: str) -> bool:
    """Whether a script imports or names what only TVM 0.6 and older had."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return False
    return any(_only_then(node) for node in ast.walk(tree))


def _only_then(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        return any(_is_module(each.name) for each in node.names)
    if isinstance(node, ast.ImportFrom):
        module = node.module or ""
        whole = [f"{module}.{each.name}" for each in node.names]
        return _is_module(module) or any(_is_name(each) for each in whole)
    name = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
    return not name.startswith("topi.") and _is_name(name)  # `topi` may be imported from tvm


def _is_module(name: str) -> bool:
    return name in MOVED or name.partition(".")[0] == "topi"


def _is_name(name: str) -> bool:
    package, _, last = name.rpartition(".")
    is_relays = (
        name.partition("relay.")[0] in ("", "tvm.") and name.partition("relay.")[2] in _RELAY
    )
    return _is_module(name) or is_relays or (package == "tvm" and last in _NAMES)
