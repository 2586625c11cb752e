"""`Parameter` and `Constant`: the arrays that blocks own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.errors import (
    BlockArgumentError,
    BlockError,
    DeferredInitializationError,
    OutOfScopeError,
)
from compiler.mxnet.symbol.symbol import Symbol, var
from compiler.mxnet_format.attributes import DTYPES

from .. import initializer
from ..array.deferred import tracing
from ..array.ndarray import ndarray, rebind
from ..array.value import Variable, call_site, current_trace, no_gradients
from ..array.wrap import dtype_name, from_host
from ..device import Device, current_device

Shape = tuple[int, ...]


class Parameter:
    """An array that belongs to a block.

    Parameters
    ----------
    name : str
        Name until a block names it after its attribute.
    grad_req : str
        "write", "add" or "null"; without effect, since Baton computes inference.
    shape : tuple of int, optional
        0 or -1 is an extent that is not known yet.
    dtype : str
    init : Initializer or str, optional
        Its own initial value; else that of `initialize`.
    allow_deferred_init : bool
        Whether the shape may stay unknown until the first call.
    lr_mult, wd_mult : float
        Written to symbols.
    differentiable : bool
        Without effect.
    stype, grad_stype : str
        Only "default": parameters are dense.

    Raises
    ------
    OutOfScopeError
        A sparse parameter.
    BlockArgumentError
        An unknown `grad_req`.
    """

    def __init__(
        self,
        name: str = "weight",
        grad_req: str = "write",
        shape: Any = None,
        dtype: Any = "float32",
        lr_mult: float = 1.0,
        wd_mult: float = 1.0,
        init: Any = None,
        allow_deferred_init: bool = False,
        differentiable: bool = True,
        stype: str = "default",
        grad_stype: str = "default",
    ) -> None:
        if stype != "default" or grad_stype != "default":
            raise OutOfScopeError(f"parameter {name!r}: only dense parameters are supported")
        if grad_req not in ("write", "add", "null"):
            raise BlockArgumentError(f"parameter {name!r}: grad_req {grad_req!r}")
        self._name = name
        self.grad_req = grad_req
        self._shape = _as_shape(shape)
        self._dtype = dtype_name(dtype)
        self.lr_mult = lr_mult
        self.wd_mult = wd_mult
        self.init = init
        self.allow_deferred_init = allow_deferred_init
        self._arrays: dict[Device, ndarray] = {}
        self._deferred: tuple[Any, list[Device]] | None = None
        self._variable = Variable(name)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for array in self._arrays.values():
            array._value.variable = self._variable

    def __repr__(self) -> str:
        return f"Parameter {self._name} (shape={self._shape}, dtype={self._dtype})"

    @property
    def name(self) -> str:
        """The name: that of the attribute that holds it."""
        return self._name

    @property
    def shape(self) -> Shape | None:
        """Extents, -1 for those that are not known; None if not even their number is."""
        return self._shape

    @shape.setter
    def shape(self, shape: Any) -> None:
        new = _as_shape(shape)
        if self._shape is None:
            self._shape = new
            return
        fits = (
            new is not None
            and len(new) == len(self._shape)
            and all(known in (-1, given) for known, given in zip(self._shape, new))
        )
        if not fits:
            raise BlockArgumentError(
                f"parameter {self._name!r} has the shape {self._shape}, which can't become {new}"
            )
        self._shape = new

    @property
    def dtype(self) -> np.dtype:
        """Element type."""
        return np.dtype(self._dtype)

    @property
    def is_known(self) -> bool:
        """Whether every extent is known."""
        return self._shape is not None and all(extent >= 0 for extent in self._shape)

    @property
    def is_deferred(self) -> bool:
        """Whether it will be initialized when its shape is known."""
        return self._deferred is not None

    def rename(self, name: str) -> None:
        """Change the name, also in symbols."""
        self._name = name
        self._variable.name = name

    def initialize(
        self,
        init: Any = None,
        device: Any = None,
        default_init: Any = None,
        force_reinit: bool = False,
        ctx: Any = None,
    ) -> None:
        """Set the initial value, now or once the shape is known.

        Parameters
        ----------
        init : Initializer or str, optional
            Wins over the parameter's own.
        device, ctx : Device or list of Device, optional
        default_init : Initializer or str, optional
            Where neither `init` nor the parameter's own is given; Uniform(0.07).
        force_reinit : bool
            Also where it has a value.

        Raises
        ------
        DeferredInitializationError
            The shape is unknown and must not be.
        """
        if self._arrays and not force_reinit:
            return
        places = _devices(device if device is not None else ctx)
        chosen = init if init is not None else self.init
        if chosen is None:
            chosen = default_init if default_init is not None else initializer.Uniform()
        if not self.is_known:
            if not self.allow_deferred_init:
                raise DeferredInitializationError(
                    f"parameter {self._name!r} has the unknown shape {self._shape}; give it, or "
                    "allow_deferred_init=True"
                )
            self._deferred = (chosen, places)
            self._arrays = {}
            return
        self._fill(initializer.create(chosen), places)

    def _fill(self, chosen: initializer.Initializer, places: Sequence[Device]) -> None:
        assert self._shape is not None
        self._assign(chosen(self._name, self._shape, self._dtype), places)

    def _assign(self, value: np.ndarray, places: Sequence[Device]) -> None:
        """Set the value from the host; existing arrays stay the same objects."""
        self._deferred = None
        with tracing(None):
            self._arrays = {place: self._arrays.get(place) for place in places}  # type: ignore
            for place in places:
                fresh = from_host(value, place)
                held = self._arrays[place]
                if held is None:
                    fresh._value.variable = self._variable
                    self._arrays[place] = fresh
                    rebind(fresh, fresh._value)
                else:
                    rebind(held, fresh._value)
        self._variable.attrs = self._annotations()

    def _annotations(self) -> dict[str, str]:
        """Attributes that MXNet writes on a parameter's variable."""
        attrs = {
            "__shape__": str(self._shape),
            "__dtype__": str(DTYPES.index(self._dtype)),
            "__lr_mult__": str(self.lr_mult),
            "__wd_mult__": str(self.wd_mult),
            "__storage_type__": "0",
        }
        if isinstance(self.init, str):
            attrs["__init__"] = self.init
        return attrs

    def finish_deferred_init(self) -> None:
        """Initialize it now, if that was deferred.

        Raises
        ------
        DeferredInitializationError
            The shape is still unknown.
        """
        if self._deferred is None:
            return
        if not self.is_known:
            raise DeferredInitializationError(
                f"parameter {self._name!r} can't be initialized: its shape {self._shape} is not "
                "known; set it in infer_shape"
            )
        chosen, places = self._deferred
        self._fill(initializer.create(chosen), places)

    def data(self, device: Device | None = None, ctx: Device | None = None) -> ndarray:
        """The array on a device.

        Raises
        ------
        DeferredInitializationError
            It is not initialized because its shape is not known.
        BlockError
            It was never initialized, or not on that device.
        """
        wanted = device or ctx
        if wanted is None and len(self._arrays) == 1:
            return next(iter(self._arrays.values()))
        found = self._arrays.get(wanted or current_device())
        if found is not None:
            return found
        self._require_initialized()
        raise BlockError(
            f"parameter {self._name!r} is on {self.list_device()}, not on "
            f"{wanted or current_device()!r}; initialize it there or use reset_device"
        )

    def _require_initialized(self) -> None:
        if self._deferred is not None:
            raise DeferredInitializationError(
                f"parameter {self._name!r} has no value yet, since its shape is not known; call "
                "the block once, or set the shape"
            )
        if not self._arrays:
            raise BlockError(
                f"parameter {self._name!r} has not been initialized; call initialize() of the "
                "block before its first use"
            )

    def list_data(self) -> list[ndarray]:
        """The arrays on all devices."""
        self._require_initialized()
        return list(self._arrays.values())

    def list_device(self) -> list[Device]:
        """List the devices of the value, also of a deferred one."""
        if self._deferred is not None:
            return list(self._deferred[1])
        return list(self._arrays)

    list_ctx = list_device

    def set_data(self, data: Any) -> None:
        """Replace the value on all devices.

        Raises
        ------
        BlockArgumentError
            The shape does not fit.
        DeferredComputeError
            A trace is being recorded.
        """
        if current_trace() is not None:
            from ..array.ndarray import reject_in_trace

            reject_in_trace(self.data())
        host = data.asnumpy() if isinstance(data, ndarray) else np.asarray(data)
        self.shape = host.shape
        if self._deferred is None:
            self._require_initialized()
        self._assign(host.astype(self._dtype), self.list_device())

    def load(self, value: np.ndarray, device: Any, cast: bool, source: str) -> None:
        """Set the value from a file; arguments as for `Block.load_parameters`."""
        where = f"parameter {self._name!r}: the file's"
        if self._shape is not None and self.is_known and self._shape != value.shape:
            raise BlockArgumentError(f"{where} shape is {value.shape}, not {self._shape}")
        self.shape = value.shape
        if str(value.dtype) != self._dtype:
            if cast and source == "saved":
                self._dtype = dtype_name(value.dtype)
            elif cast:
                value = value.astype(self._dtype)
            else:
                raise BlockArgumentError(
                    f"{where} dtype is {value.dtype}, not {self._dtype}; cast_dtype=True converts"
                )
        places = _devices(device) if device is not None else self.list_device()
        self._assign(value, places or _devices(None))

    def reset_device(self, device: Any) -> None:
        """Move it to other devices."""
        places = _devices(device)
        if self._deferred is not None:
            self._deferred = (self._deferred[0], places)
            return
        self._require_initialized()
        self._assign(self.data(self.list_device()[0]).asnumpy(), places)

    reset_ctx = reset_device

    def cast(self, dtype: Any) -> None:
        """Change its dtype, and that of its value."""
        self._dtype = dtype_name(dtype)
        if self._arrays:
            places = self.list_device()
            self._assign(self.data(places[0]).asnumpy().astype(self._dtype), places)

    def zero_grad(self) -> None:
        """There are no gradients."""

    def grad(self, *_: Any, **__: Any) -> Any:
        """Raise OutOfScopeError: there are no gradients."""
        raise no_gradients(f"the gradient of parameter {self._name!r}")

    list_grad = grad

    def var(self) -> Symbol:
        """Return the variable of the parameter in symbols."""
        return var(self._name, self._annotations())


class Constant(Parameter):
    """A parameter with a fixed value that initialization does not change."""

    def __init__(self, value: Any, name: str = "const") -> None:
        host = value.asnumpy() if isinstance(value, ndarray) else np.asarray(value)
        if host.dtype == np.float64 and not isinstance(value, np.ndarray):
            host = host.astype("float32")
        self.value = host
        super().__init__(name, "null", host.shape, host.dtype, init=initializer.Constant(host))

    def __repr__(self) -> str:
        return f"Constant (shape={self._shape}, dtype={self._dtype})"

    def initialize(self, init: Any = None, *args: Any, **kwargs: Any) -> None:
        """Set the value."""
        super().initialize(self.init, *args, **kwargs)


class Unshaped(ndarray):
    """A parameter's array on a device, before its shape is known."""

    def __init__(self, param: Parameter, device: Device) -> None:
        self.param = param
        self._device = device

    @property
    def _value(self) -> Any:  # type: ignore[override]
        """The parameter's value, once an operator has told its shape."""
        if not self.param.is_known:
            raise DeferredInitializationError(
                f"{call_site()}: the shape of parameter {self.param.name!r} is not known here; it "
                "follows from operators such as F.FullyConnected that read it. Give its shape, or "
                "define infer_shape()"
            )
        self.param.finish_deferred_init()
        return self.param.data(self._device)._value


def _as_shape(shape: Any) -> Shape | None:
    if shape is None:
        return None
    extents = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    return tuple(-1 if int(n) <= 0 and int(n) in (0, -1) else int(n) for n in extents)


def _devices(device: Any) -> list[Device]:
    if device is None:
        return [current_device()]
    found = [device] if isinstance(device, Device) else list(device)
    if not found or not all(isinstance(each, Device) for each in found):
        raise BlockArgumentError(f"{call_site()}: {device!r} is not a device")
    return list(dict.fromkeys(found))
