"""Place values on devices and insert copies, so that one executable runs on several devices.

    before   lv0 = R.call_tir(cpu_kernel, (x,), R.Tensor((1, 64), "float32"))
             lv1 = R.call_tir(cuda_kernel, (lv0, w), R.Tensor((1, 10), "float32"))
             gv = lv1
    after    lv0 = R.call_tir(cpu_kernel, (x,), R.Tensor((1, 64), "float32", "llvm:0"))
             lv2 = R.to_vdevice(lv0, "cuda:0")
             lv1 = R.call_tir(cuda_kernel, (lv2, w), R.Tensor((1, 10), "float32", "cuda:0"))
             gv = R.to_vdevice(lv1, "llvm:0")

A kernel runs on the device of its attribute `target`. Inputs and results of a function are on the
function's device. A weight that only kernels of one device read is expected on that device, which
avoids a copy on each call (see `weight_devices`). A value is copied once per device. The device of
`main` is the module's first virtual device, as the virtual machine requires (`kinds`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax
from tvm.target import Target

from ...errors import BuildError
from ...ir.rewrite import relax_functions
from ...primfuncs.fusion_pattern import called_kernel
from ...runtime.foreign import RUN_ON_CUDA
from ...tvm_workarounds.block_builder import BlockBuilder
from ...tvm_workarounds.scan_barriers import with_barriers
from ..graph_passes.nan_safe_sort import sort_by_keys
from ..graph_passes.symbolic_scan import scan_symbolic
from ..kernel_passes.pipeline import PIPELINE

MAIN = "main"
HOST = "cpu"
"""Kind of the device on which foreign code runs, whatever its callers run on; but `RUN_ON_CUDA`."""
FOREIGN = ("baton.foreign.", "subgraph_")
"""How the names of packed functions begin that backends compiled."""


def kinds(function_targets: Mapping[str, Target]) -> tuple[str, ...]:
    """Device kinds of the functions, such as "cpu" and "cuda": `main`'s first, then in order."""
    targets = [function_targets[MAIN], *function_targets.values()]
    return tuple(dict.fromkeys(device_kind(target) for target in targets))


def device_kind(target: Target) -> str:
    """Kind of the device that runs a target's code: "cpu" for llvm and c, else TVM's name."""
    return str(tvm.device(target.get_target_device_type(), 0)).rsplit(":", 1)[0]


def place(
    mod: tvm.IRModule, main_target: Target, function_targets: Mapping[str, Target]
) -> tvm.IRModule:
    """Annotate every value with its device and insert the copies between devices.

    Runs on scheduled kernels, when operators have become `call_tir` and before `CallTIRRewrite`,
    which allocates each result on the device that its type names. Best after constants became
    parameters: a constant that is still in a function is copied on each call.

    `main_target`: target of `main`, and of kernels and functions that name none.
    `function_targets`: target of each Relax function, also of those inlined before. Returns the
    same module if all is on one device. Raises BuildError: a function holds a branch, a call of
    another Relax function (inline those first), or another expression that can't be placed.
    """
    by_kind: dict[str, Target] = {device_kind(main_target): main_target}
    kernels = {
        gvar.name_hint: target_of(func, main_target)
        for gvar, func in mod.functions_items()
        if isinstance(func, tvm.tirx.PrimFunc)
    }
    for target in (*kernels.values(), *function_targets.values()):
        by_kind.setdefault(device_kind(target), target)
    if len(by_kind) == 1:
        return mod
    vdevices = {kind: relax.VDevice(target, 0, "global") for kind, target in by_kind.items()}
    kernel_kinds = {name: device_kind(target) for name, target in kernels.items()}
    kernel_kinds[RUN_ON_CUDA] = "cuda"
    functions = dict(mod.functions_items())
    for gvar, func in relax_functions(mod):
        target = function_targets.get(gvar.name_hint, main_target)
        placer = _Placer(device_kind(target), device_kind(main_target), kernel_kinds, vdevices)
        functions[gvar] = placer.place(func)
    infos = dict(mod.global_infos or {})
    infos["vdevice"] = list(vdevices.values())
    return tvm.IRModule(functions, attrs=mod.attrs, global_infos=infos)


def weight_devices(mod: tvm.IRModule) -> tuple[int, ...]:
    """Indices into `kinds` of the weights: the parameters of a placed `main` after `num_input`."""
    main = mod[MAIN]
    vdevices = list((mod.global_infos or {}).get("vdevice", []))
    weights = main.params[_num_input(main) :]
    return tuple(
        vdevices.index(var.ty.vdevice) if vdevices and var.ty.vdevice is not None else 0
        for var in weights
    )


def dispatch_sorts(mod: tvm.IRModule, function_targets: Mapping[str, Target]) -> tvm.IRModule:
    """Turn sorting, scanning and sampling into kernels; runs before legalization.

    Legalization supports neither scans nor `topk`. On a CPU a sort calls TVM's host library; for
    GPUs TVM has device versions, which launch their own threads.
    """
    for name, target in function_targets.items():
        mod = sort_by_keys(mod, name)
        if device_kind(target) == "cpu":
            mod = scan_symbolic(mod, name)
        gvar = mod.get_global_var(name)
        # The pass works on every Relax function of a module; the kernels are told apart by name.
        alone = {g: f for g, f in mod.functions_items() if not isinstance(f, relax.Function)}
        alone[gvar] = mod[gvar]
        with target:
            dispatched = relax.backend.DispatchSampling()(tvm.IRModule(alone))
            dispatched = relax.backend.DispatchSortScan()(dispatched)
        functions = dict(mod.functions_items())
        functions.update(dispatched.functions_items())
        if device_kind(target) == "cuda":
            kernels = [each for each in dispatched.functions if each not in alone]
            functions |= {each: with_barriers(functions[each]) for each in kernels}
        mod = tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
    return mod


def separate_cpus(target: Target) -> tvm.transform.Pass:
    """The last pass before VM code generation: compile CPU kernels for a CPU other than `target`.

    TVM compiles all CPU kernels of a module for the CPU features of the build's host. Kernels with
    another `target` attribute are compiled here, one group for each CPU, and passed on as
    `external_mods`, which `relax.build` links into the executable.
    """
    host = target if device_kind(target) == "cpu" else target.host

    @tvm.transform.module_pass(opt_level=0, name="SeparateCpus")
    def separate(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        groups: dict[str, tuple[Target, dict[Any, Any]]] = {}
        kept = {}
        for gvar, func in mod.functions_items():
            own = target_of(func, target) if isinstance(func, tvm.tirx.PrimFunc) else None
            if own is None or device_kind(own) != "cpu" or _cpu(own) == _cpu(host):
                kept[gvar] = func
            else:
                groups.setdefault(_cpu(own), (own, {}))[1][gvar] = func
        if not groups:
            return mod
        libraries = [
            tvm.tirx.build(tvm.IRModule(functions), target=own, pipeline=PIPELINE)
            for own, functions in groups.values()
        ]
        attrs = dict(mod.attrs or {})
        attrs["external_mods"] = [*attrs.get("external_mods", []), *libraries]
        return tvm.IRModule(kept, global_infos=mod.global_infos).with_attrs(attrs)

    return separate


def _cpu(target: Target) -> str:
    """The options of a CPU target that the code generator reads."""
    seen = {name: target.attrs.get(name) for name in ("mtriple", "mcpu", "mattr", "mabi")}
    return f"{target.kind.name} {seen}"


def target_of(func: Any, default: Target) -> Target:
    target = func.attrs.get("target") if func.attrs else None
    return default if target is None else Target(target)


def _num_input(function: relax.Function) -> int:
    attrs = function.attrs or {}
    return int(attrs["num_input"]) if "num_input" in attrs else len(function.params)


class _Placer:
    """Rebuilds one function, binding by binding.

    `own`: device kind of the function's inputs and results. `constants`: `main`'s.
    """

    def __init__(
        self,
        own: str,
        constants: str,
        kernels: Mapping[str, str],
        vdevices: Mapping[str, relax.VDevice],
    ):
        self.own = own
        self.constants = constants
        self.kernels = kernels
        self.vdevices = vdevices
        self.builder = BlockBuilder()
        self.values: dict[Any, Any] = {}  # variable before -> variable after
        self.kind_of: dict[Any, str] = {}  # variable after -> kind of its device
        self.copies: dict[tuple[Any, str], Any] = {}  # within the block that is being built

    def place(self, function: relax.Function) -> relax.Function:
        params = self._params(function)
        with self.builder.function(MAIN, params):
            for block in function.body.blocks:
                self.copies.clear()
                if isinstance(block, relax.DataflowBlock):
                    with self.builder.dataflow():
                        self._bindings(block)
                else:
                    self._bindings(block)
            self.copies.clear()
            self.builder.emit_func_output(self._moved(function.body.body, self.own))
        placed = self.builder.get()[MAIN]
        return relax.Function(
            placed.params, placed.body, placed.ret_ty, function.is_pure, function.attrs
        )

    def _params(self, function: relax.Function) -> list[relax.Var]:
        """Inputs on the function's device; each weight on the device of its only readers."""
        params = []
        readers = self._readers(function)
        for position, var in enumerate(function.params):
            kinds_of_readers = readers.get(var, set())
            is_weight = position >= _num_input(function)
            kind = self.own
            if is_weight and len(kinds_of_readers) == 1:
                (kind,) = kinds_of_readers
            placed = relax.Var(var.name, self._on(var.ty, kind))
            self.values[var], self.kind_of[placed] = placed, kind
            params.append(placed)
        return params

    def _readers(self, function: relax.Function) -> dict[Any, set[str]]:
        readers: dict[Any, set[str]] = {}
        for block in function.body.blocks:
            for binding in block.bindings:
                kernel = _kernel(binding.value)
                kind = self.kernels.get(kernel, HOST) if kernel is not None else self.own
                for var in relax.analysis.free_vars(binding.value):
                    readers.setdefault(var, set()).add(kind)
        return readers

    def _bindings(self, block: relax.BindingBlock) -> None:
        in_dataflow = isinstance(block, relax.DataflowBlock)
        for binding in block.bindings:
            value, kind = self._value(binding.value)
            is_output = in_dataflow and not isinstance(binding.var, relax.DataflowVar)
            emit = self.builder.emit_output if is_output else self.builder.emit
            placed = emit(value, name_hint=binding.var.name)
            self.values[binding.var], self.kind_of[placed] = placed, kind

    def _value(self, value: Any) -> tuple[Any, str]:
        """The right-hand side of a binding with placed operands, and the device of its result."""
        kernel = _kernel(value)
        if kernel is not None:
            kind = self.kernels.get(kernel, HOST)
            operands = relax.Tuple([self._moved(field, kind) for field in value.args[1].fields])
            out = [self._on(ty, kind) for ty in value.ty_args]
            args = [value.args[0], operands, *value.args[2:]]
            return relax.Call(value.op, args, value.attrs, out), kind
        if isinstance(value, relax.Var):
            return self.values[value], self.kind_of[self.values[value]]
        if isinstance(value, relax.TupleGetItem):
            held = self.values.get(value.tuple_value)
            if held is None:
                raise BuildError(f"can't place the element of {value.tuple_value} on a device")
            return relax.TupleGetItem(held, value.index), self.kind_of[held]
        if isinstance(value, relax.Tuple):
            return relax.Tuple([self._moved(field, self.own) for field in value.fields]), self.own
        if isinstance(value, relax.Call) and not isinstance(value.op, tvm.ir.GlobalVar):
            args = [self._moved(arg, self.own) for arg in value.args]
            ty_args = [self._on(ty, self.own) for ty in value.ty_args]
            return relax.Call(value.op, args, value.attrs, ty_args), self.own
        if isinstance(value, tvm.ir.GenericConst):
            return value, self.constants
        raise BuildError(
            f"can't place {type(value).__name__} {str(value)[:200]!r} on a device: the function "
            "must be static, in A-normal form, and subgraphs inlined"
        )

    def _moved(self, value: Any, kind: str) -> Any:
        """The operand `value` on a device of that kind; copied if it is on another device."""
        if isinstance(value, relax.Tuple):
            return relax.Tuple([self._moved(field, kind) for field in value.fields])
        if isinstance(value, relax.Var):
            value = self.values[value]
            held_on = self.kind_of[value]
        elif isinstance(value, tvm.ir.GenericConst):
            held_on = self.constants
        else:
            return value  # shapes, scalars and names are on no device
        if held_on == kind:
            return value
        if (value, kind) not in self.copies:
            self.copies[(value, kind)] = self._copy(value, kind)
        return self.copies[(value, kind)]

    def _copy(self, value: Any, kind: str) -> Any:
        if isinstance(value.ty, relax.TupleType):
            fields = [
                self._copy(self.builder.emit(relax.TupleGetItem(value, index)), kind)
                for index in range(len(value.ty.fields))
            ]
            return self.builder.emit(relax.Tuple(fields))
        return self.builder.emit(relax.op.to_vdevice(value, self.vdevices[kind]))

    def _on(self, ty: Any, kind: str) -> Any:
        """The type of a value, or of a tuple's values, on a device of that kind."""
        if isinstance(ty, relax.TupleType):
            return relax.TupleType([self._on(field, kind) for field in ty.fields])
        if isinstance(ty, relax.TensorType):
            return relax.TensorType(ty.shape, ty.dtype, vdevice=self.vdevices[kind])
        return ty


def _kernel(value: Any) -> str | None:
    """Name of the TIR function or external function that a binding calls; None if no call."""
    if getattr(getattr(value, "op", None), "name", "") == "relax.call_dps_packed":
        symbol = str(value.args[0].global_symbol)
        return symbol if symbol.startswith(FOREIGN) else None
    return called_kernel(value)
