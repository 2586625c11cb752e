"""Running a symbol: it is imported, built for a device and called with arrays by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler.errors import InputError, OutOfScopeError
from compiler.mxnet_format.data_dependent import is_dynamic
from compiler.relay.frontend.mxnet import host_array

from .dynamic_pieces import Piece, cut_pieces, run_pieces

if TYPE_CHECKING:
    from .symbol import Symbol

_TARGETS = {"cpu": "llvm", "gpu": "cuda", "cuda": "cuda", "llvm": "llvm"}
_KEPT = 64
"""Programs for pieces of a symbol of dynamic shapes; the oldest goes."""


class HostArray(np.ndarray):
    """A numpy array with the methods by which MXNet's code reads arrays."""

    def asnumpy(self) -> np.ndarray:
        """A copy as a plain numpy array."""
        return np.array(self, subok=False)

    def asscalar(self) -> Any:
        """The one element, as a Python number."""
        return self.item()

    def abs(self) -> HostArray:
        """Absolute values."""
        return np.abs(self).view(HostArray)

    def wait_to_read(self) -> None:
        """Nothing to do: it is computed."""


def _held(array: np.ndarray) -> HostArray:
    return np.array(array).view(HostArray)


class _Compiled:
    """A symbol compiled for arrays of given shapes and dtypes."""

    def __init__(self, symbol: Symbol, values: Mapping[str, np.ndarray], kind: str) -> None:
        import tvm

        from compiler import relay
        from compiler.relay.frontend.mxnet import import_symbol
        from compiler.runtime.graph_executor import GraphModule

        mod, _ = import_symbol(
            symbol,
            {name: value.shape for name, value in values.items()},
            {name: str(value.dtype) for name, value in values.items()},
        )
        self.inputs = [str(parameter.name) for parameter in mod["main"].params]
        target = _TARGETS[kind]
        self.library = relay.build(mod, target)
        device = tvm.cpu(0) if target == "llvm" else tvm.cuda(0)
        self._module = GraphModule(self.library["default"](device))

    def __call__(self, values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        self._module.run(**{name: values[name] for name in self.inputs})
        count = self._module.get_num_outputs()
        return [self._module.get_output(index).numpy() for index in range(count)]


class Executor:
    """A symbol with arrays for its variables, compiled for one device.

    `arg_dict`, `aux_dict`: the values that the next `forward` reads; they may be written to.
    `outputs`: of the last `forward`.
    `arrays`: values of arguments and auxiliary states; those that inference does not read may be
    left out.
    `ctx`: "cpu", which is the default, or "gpu".
    Raises InputError: an array is missing, or the device is unknown.
    Raises FrontendError: the symbol can't be imported, or shapes contradict each other.
    Raises BuildError: it can't be compiled.
    """

    def __init__(self, symbol: Symbol, arrays: Mapping[str, Any], ctx: Any = None) -> None:
        self._kind = _device_kind(ctx)
        names = set(symbol.list_inputs())
        held = {name: _held(host_array(value)) for name, value in arrays.items() if name in names}
        self.arg_dict = {name: held[name] for name in symbol.list_arguments() if name in held}
        states = symbol.list_auxiliary_states()
        self.aux_dict = {name: held[name] for name in states if name in held}
        self.outputs: list[HostArray] = []
        self._outputs = symbol.list_outputs()
        self._pieces: list[Piece] = []
        self._results: list[str] = []
        self._compiled: dict[Any, _Compiled] = {}
        if is_dynamic(symbol.graph):
            self._pieces, self._results = cut_pieces(symbol)
            self._inputs = symbol.list_inputs()
        else:
            self._whole = _Compiled(symbol, {**self.arg_dict, **self.aux_dict}, self._kind)
            self._inputs = self._whole.inputs

    @property
    def library(self) -> Any:
        """The library that was built, with `report` and `partition_info()`.

        Raises InputError: data-dependent output shapes give the symbol several libraries.
        """
        if self._pieces:
            raise InputError("a symbol of dynamic shapes is compiled in pieces, as they are met")
        return self._whole.library

    @property
    def arg_arrays(self) -> list[HostArray]:
        """The values of `arg_dict` in the order of `list_arguments()`."""
        return list(self.arg_dict.values())

    @property
    def aux_arrays(self) -> list[HostArray]:
        """The values of `aux_dict` in the order of `list_auxiliary_states()`."""
        return list(self.aux_dict.values())

    @property
    def output_dict(self) -> dict[str, HostArray]:
        """The outputs of the last `forward` by name; of equal names the last."""
        return dict(zip(self._outputs, self.outputs))

    def copy_params_from(
        self,
        arg_params: Mapping[str, Any],
        aux_params: Mapping[str, Any] | None = None,
        allow_extra_params: bool = False,
    ) -> None:
        """Replace values of arguments and auxiliary states.

        Raises InputError: a name is unknown, unless `allow_extra_params`, or a shape is another.
        """
        for given, held in ((arg_params, self.arg_dict), (aux_params or {}, self.aux_dict)):
            for name, value in given.items():
                if name not in held:
                    if allow_extra_params:
                        continue
                    raise InputError(f"the symbol has no parameter {name!r}; it has {[*held]}")
                array = _held(host_array(value).astype(held[name].dtype))
                if array.shape != held[name].shape:
                    raise InputError(
                        f"{name!r} has the shape {array.shape}, not {held[name].shape}"
                    )
                held[name] = array

    def set_monitor_callback(self, callback: Any, monitor_all: bool = False) -> None:
        """Raise OutOfScopeError: operators are fused, so their outputs are not computed apart."""
        raise OutOfScopeError(
            "set_monitor_callback(): operators are fused; read intermediate results as outputs of "
            "symbol.get_internals()"
        )

    def forward(self, is_train: bool = False, **arrays: Any) -> list[HostArray]:
        """Run once; arrays given replace earlier ones of the same shape.

        Raises OutOfScopeError: training is asked for.
        Raises InputError: a name is unknown, or an array has no value or another shape.
        """
        if is_train:
            raise OutOfScopeError("is_train=True: symbols are run for inference only")
        unknown = sorted(set(arrays) - set(self._inputs))
        if unknown:
            raise InputError(f"the symbol reads no input {unknown[0]!r}; inputs: {self._inputs}")
        for name, value in arrays.items():
            held = self.aux_dict if name in self.aux_dict else self.arg_dict
            held[name] = _held(host_array(value))
        values = {**self.arg_dict, **self.aux_dict}
        missing = [name for name in self._inputs if name not in values]
        if missing:
            raise InputError(f"input {missing[0]!r} has no value")
        plain = {name: values[name].view(np.ndarray) for name in self._inputs}
        self.outputs = [_held(each) for each in self._run(plain)]
        return self.outputs

    def _run(self, values: dict[str, np.ndarray]) -> list[np.ndarray]:
        if not self._pieces:
            return self._whole(values)
        run_pieces(self._pieces, values, self._run_piece, np.asarray, np.asarray)
        return [values[name] for name in self._results]

    def _run_piece(
        self, number: int, piece: Piece, arrays: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        assert piece.symbol is not None
        given = dict(zip(piece.inputs, arrays))
        key = (number, *((array.shape, str(array.dtype)) for array in arrays))
        if key not in self._compiled:
            if len(self._compiled) >= _KEPT:
                self._compiled.pop(next(iter(self._compiled)))
            self._compiled[key] = _Compiled(piece.symbol, given, self._kind)
        return self._compiled[key](given)

    def backward(self, *_: Any, **__: Any) -> None:
        """Raise OutOfScopeError: there are no gradients."""
        raise OutOfScopeError("backward(): symbols are run for inference only; no gradients")


def _device_kind(ctx: Any) -> str:
    text = "cpu" if ctx is None else str(ctx if isinstance(ctx, str) else _kind_name(ctx))
    kind = text.split("(")[0].split(":")[0].strip()
    if kind not in _TARGETS:
        raise InputError(f"ctx is {ctx!r}; give 'cpu', 'gpu' or a device")
    return kind


def _kind_name(ctx: Any) -> str:
    kind = getattr(ctx, "device_type", None)
    if isinstance(kind, str):
        return kind
    code = getattr(ctx, "dlpack_device_type", lambda: 0)()
    return {1: "cpu", 2: "gpu"}.get(int(code), str(ctx))
