"""`tvm.te`, `tvm.lower` and `tvm.build` of TVM 0.18, where schedules of tensor expressions were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tvm
import tvm.driver.build_module
import tvm_ffi
from tvm import te

from .patches import Patches
from .relax_names import DType

# What `tvm.te` had, and `compiler.legacy.te` has; loaded when a script first names it.
_TE = (
    *("AXIS_SEPARATOR", "Schedule", "Stage", "TensorIntrin", "create_schedule"),
    *("decl_tensor_intrin", "gradient", "hybrid", "schedule"),
)
_new_dtype = te.Tensor.dtype.fget
_new_dtype_of_var = tvm.ir.Var.dtype.fget
_new_build = tvm.build
_new_scan = te.scan
_new_time_evaluator = tvm.runtime.Module.time_evaluator


def patch(patches: Patches) -> None:
    """Let `tvm.te` have schedules, and `tvm.lower` and `tvm.build` take them."""
    patches.set(te, "__getattr__", _of_te)
    patches.set(te, "scan", _scan)
    patches.set(te, "compute", _later("compute"))
    for name in ("schedule_to_module", "form_irmodule"):  # the latter in TVM 0.7
        patches.add(tvm.driver.build_module, name, _schedule_to_module)
    for owner in (tvm, tvm.driver):
        patches.set(owner, "build", build)
        patches.add(owner, "lower", _later("lower"))
    patches.add(tvm.topi.nn, "sparse_dense", _later("sparse_dense"))
    patches.add(tvm.ir.Expr, "dtype", property(_dtype_of_scalar))
    patches.add(te.ExternOp, "axis", property(_later("loops_of")))
    patches.add(tvm.ir.Var, "name_hint", property(lambda self: str(self.name)))
    module = tvm.runtime.Module
    patches.add(module, "entry_func", property(lambda self: self[self.entry_name]))
    patches.add(module, "imported_modules", property(lambda self: list(self.imports)))
    patches.add(module, "get_source", _source)
    patches.add(module, "type_key", property(lambda self: self.kind))
    patches.add(module, "save", lambda self, file_name, fmt="": self.write_to_file(file_name, fmt))
    if tvm.tirx.IterVar.__hash__ is None:  # axes are kept in sets and as keys
        patches.set(tvm.tirx.IterVar, "__hash__", tvm_ffi.Object.__hash__)


def change(patches: Patches) -> None:
    """Let dtypes be text, and evaluators take `ctx`."""
    patches.set(tvm.runtime.Module, "time_evaluator", _time_evaluator)
    patches.set(te.Tensor, "dtype", property(lambda self: DType(str(_new_dtype(self)))))
    patches.set(te.Tensor, "expr_ty", _new_dtype)
    patches.set(tvm.ir.Var, "dtype", property(_dtype_of_var))


def _of_te(name: str) -> Any:
    if name not in _TE:
        raise AttributeError(f"module 'tvm.te' has no attribute {name!r}")
    from . import te as te_schedules

    return getattr(te_schedules, name)


def _later(name: str) -> Any:
    """A function of `compiler.legacy.te`, which is loaded when it is first called."""

    def call(*args: Any, **kwargs: Any) -> Any:
        from . import te as te_schedules

        return getattr(te_schedules, name)(*args, **kwargs)

    call.__name__, call.__doc__ = name, f"See `compiler.legacy.te.{name}`."
    return call


def _scan(init: Any, update: Any, *args: Any, **kwargs: Any) -> Any:
    """`te.scan`, where a number in the start's shape takes the type of the update's extent."""
    last = update[0] if isinstance(update, (list, tuple)) else update
    dtype = str(last.shape[0].ty.dtype)
    if isinstance(init, (list, tuple)):
        return _new_scan([_with_steps(t, dtype) for t in init], update, *args, **kwargs)
    return _new_scan(_with_steps(init, dtype), update, *args, **kwargs)


def _with_steps(tensor: Any, dtype: str) -> Any:
    """A computation whose first axis has an extent of type `dtype`."""
    from .te.dataflow import compute_op, substitute

    op = tensor.op
    if not isinstance(op, te.ComputeOp) or str(op.axis[0].var.ty.dtype) == dtype:
        return tensor
    old = op.axis[0]
    extent = tvm.tirx.const(int(old.dom.extent), dtype)
    first = tvm.tirx.IterVar(tvm.ir.Range(tvm.tirx.const(0, dtype), extent), old.var.name, 0)
    body = [substitute(value, {old.var: first.var}) for value in op.body]
    new = compute_op(str(op.name), [first, *op.axis[1:]], body, op)
    return new.output(int(tensor.value_index))


def _schedule_to_module(
    sch: Any,
    args: Sequence[Any] | None = None,
    name: str = "main",
    binds: Mapping[Any, Any] | None = None,
) -> Any:
    """A module with the loops of a schedule, as they are before any pass."""
    from . import te as te_schedules

    return tvm.IRModule({name: te_schedules.schedule_to_function(sch, args or [], name, binds)})


def _dtype_of_scalar(expr: Any) -> DType:
    if not isinstance(expr.ty, tvm.ir.PrimType):
        raise AttributeError(f"{type(expr).__name__!r} object has no attribute 'dtype'")
    return DType(str(expr.ty.dtype))


def _dtype_of_var(var: Any) -> Any:
    is_scalar = isinstance(var.ty, tvm.ir.PrimType)
    return _dtype_of_scalar(var) if is_scalar else _new_dtype_of_var(var)


def _time_evaluator(
    module: Any, func_name: str, dev: Any = None, *options: Any, ctx: Any = None, **named: Any
) -> Any:
    """Time a function; `ctx` is `dev` as TVM 0.7 spelled it."""
    return _new_time_evaluator(module, func_name, ctx if dev is None else dev, *options, **named)


def _source(module: Any, fmt: str = "") -> str:
    """The module's source, without the device code that Baton appends to it.

    A library that holds its kernels as object code gives "asm" by disassembling it. "" is the LLVM
    IR of what this process built, and the same as "asm" for other libraries.
    """
    from ..runtime.cuda_code import without_code
    from ..runtime.disassembly import assembly, object_modules

    make_ir = vars(module).get("baton_llvm_ir")  # asked for as a function, CUDA's modules raise
    if fmt in ("", "ll") and make_ir is not None:
        return str(make_ir())
    if fmt in ("", "asm", "s") and any(True for _ in object_modules(module)):
        return assembly(module)
    return without_code(str(module.inspect_source(fmt)))


def build(
    inputs: Any = None,
    args: Sequence[Any] | None = None,
    target: Any = None,
    target_host: Any = None,
    runtime: Any = None,
    name: str | None = "default_function",
    binds: Mapping[Any, Any] | None = None,
    **of_today: Any,
) -> Any:
    """`tvm.build`: see `compiler.legacy.te.build`; calls of today's form go to today's function."""
    if of_today:
        mod = of_today.pop("mod", inputs)
        return _new_build(mod, target, **of_today)
    from . import te as te_schedules

    return te_schedules.build(inputs, args, target, target_host, runtime, name, binds)


def _matmul(left: Any, right: Any, out: Any, transa: bool = False, transb: bool = False) -> None:
    """The product of two matrices, or of two batches of them, put into `out`."""
    a, b = left.numpy(), right.numpy()
    a = a.swapaxes(-1, -2) if transa else a
    b = b.swapaxes(-1, -2) if transb else b
    out.copyfrom(np.matmul(a, b))


def register_blas() -> None:
    """Register `tvm.contrib.cblas.*`, which `te.extern` calls, unless this TVM has a BLAS.

    They call numpy's BLAS from Python, so libraries with such calls run where Baton is.
    """
    for name in ("matmul", "batch_matmul", "batch_matmul_iterative"):
        full = f"tvm.contrib.cblas.{name}"
        if tvm.get_global_func(full, allow_missing=True) is None:
            tvm.register_global_func(full, _matmul)
