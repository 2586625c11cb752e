"""`ndarray`: numpy's interface over values that are computed when they are needed."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler.errors import ArrayError, ArrayTypeError, DeferredComputeError, OutOfScopeError

from ..device import Device
from . import indexing
from .engine import create_tensor, evaluate, tensor_of
from .invoke import invoke
from .value import (
    Value,
    call_site,
    current_trace,
    no_gradients,
    note_parameter_change,
    note_shape_read,
)
from .wrap import dtype_name, from_host, set_array_class, wrap

if TYPE_CHECKING:
    from .methods import Methods as _Methods  # which they get when they are imported
else:
    _Methods = object


class ndarray(_Methods):
    """An array on a device.

    Operations are recorded and computed when a value is needed: by `asnumpy`, printing, `bool`,
    `item`, conversion to numpy or DLPack, or `wait_to_read`. Views do not exist: an index makes
    a new array, and a change of an array is seen by no other.

    Make one with `compiler.mxnet.np.array`, `zeros`, ... or `from_numpy`.
    """

    __array_priority__ = 1000.0
    __hash__ = object.__hash__

    _value: Value

    def __init__(self, *_: Any, **__: Any) -> None:
        raise ArrayTypeError(f"{call_site()}: make arrays with np.array, np.zeros, ...")

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents; known without computing anything."""
        note_shape_read(self._value)
        return self._value.shape

    @property
    def dtype(self) -> np.dtype:
        """Element type."""
        return np.dtype(self._value.dtype)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        note_shape_read(self._value, rank_only=True)
        return len(self._value.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        note_shape_read(self._value)
        return int(np.prod(self._value.shape, dtype=np.int64))

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.itemsize

    @property
    def device(self) -> Device:
        """Where it is."""
        return self._value.device

    ctx = context = device

    @property
    def T(self) -> ndarray:
        """With the axes reversed."""
        return self.transpose()

    # Values, which computing is for.

    def asnumpy(self) -> np.ndarray:
        """A copy as a numpy array.

        Raises
        ------
        DeferredComputeError
            A forward that is being traced asks for it.
        """
        return np.array(self._host())

    def _host(self) -> np.ndarray:
        """The elements, in the array's own memory where numpy can see it, not to be written."""
        tensor = tensor_of(self._value)
        view = np.from_dlpack(tensor) if self.device.is_cpu else tensor.numpy()
        view.flags.writeable = False  # other arrays may name the same value
        return view

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        host = self._host()
        if dtype is not None and np.dtype(dtype) != host.dtype:
            if copy is False:
                raise ArrayError(f"a conversion from {host.dtype} to {dtype} needs a copy")
            return host.astype(dtype)
        return np.array(host) if copy else host

    def __dlpack__(self, **kwargs: Any) -> Any:
        return tensor_of(self._value).__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        return tensor_of(self._value).__dlpack_device__()

    def item(self, *index: int) -> Any:
        """One element as a Python number."""
        return self._host().item(*index)

    asscalar = item

    def tolist(self) -> Any:
        """Elements as nested lists."""
        return self._host().tolist()

    def wait_to_read(self) -> None:
        """Compute the value if it has not been computed."""
        tensor_of(self._value)
        if not self.device.is_cpu:
            self.device.tvm_device().sync()

    def __bool__(self) -> bool:
        return bool(self._host())

    def __float__(self) -> float:
        return float(self._host())

    def __int__(self) -> int:
        return int(self._host())

    def __index__(self) -> int:
        return operator.index(self._host()[()])

    def __len__(self) -> int:
        note_shape_read(self._value)
        if not self.ndim:
            raise ArrayTypeError(f"{call_site()}: len() of an array without axes")
        return self.shape[0]

    def __iter__(self) -> Iterator[ndarray]:
        note_shape_read(self._value)
        return (self[index] for index in range(len(self)))

    def __contains__(self, item: Any) -> bool:
        return item in self._host()

    def __repr__(self) -> str:
        trace = current_trace()
        if trace is not None and trace.block and self._value.has_history:
            return f"<traced ndarray {self.shape} {self._value.dtype} of {trace.block}>"
        place = "" if self.device.is_cpu else f", device={self.device!r}"
        text = repr(self._host())
        return f"{text[:-1]}{place})"

    def __str__(self) -> str:
        return str(self._host())

    def __format__(self, spec: str) -> str:
        return format(self._host(), spec) if not self.ndim else format(str(self), spec)

    def __reduce__(self) -> Any:
        return from_host, (self.asnumpy(),)

    # Changes.

    def __getitem__(self, key: Any) -> ndarray:
        return indexing.get(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        reject_in_trace(self)
        host = self.asnumpy()
        host[indexing.host_key(key)] = np.asarray(value)
        rebind(
            self, Value(self.shape, str(self.dtype), self.device, create_tensor(host, self.device))
        )

    def detach(self) -> ndarray:
        """Return an array of this value without its variable."""
        return wrap(self._value.alias())

    def copy(self) -> ndarray:
        """Return a copy; changing either array leaves the other as it is."""
        return invoke("_copy", [self])[0] if current_trace() else self.detach()

    def copyto(self, other: ndarray | Device) -> ndarray:
        """Into another array, or onto a device."""
        if isinstance(other, Device):
            return self.to_device(other)
        reject_in_trace(other)
        if other.shape != self.shape:
            raise ArrayError(f"{call_site()}: {self.shape} can't be copied into {other.shape}")
        rebind(other, self.astype(other.dtype).to_device(other.device)._value.alias())
        return other

    def to_device(self, device: Device) -> ndarray:
        """On another device; itself where it is there already."""
        if device == self.device:
            return self
        if current_trace() is not None:
            if not (device.is_cpu and self.device.is_cpu):
                raise DeferredComputeError(
                    f"{call_site()}: a traced forward runs on one device; move arrays outside of it"
                )
            copied = invoke("_copyto", [self])[0]
            copied._value.device = device
            return copied
        tensor = tensor_of(self._value).copyto(device.tvm_device())
        return wrap(Value(self.shape, self._value.dtype, device, tensor))

    as_in_ctx = as_in_context = to_device

    def astype(self, dtype: Any, copy: bool = True) -> ndarray:
        """With another dtype."""
        name = dtype_name(dtype)
        if name == self._value.dtype and (not copy or current_trace() is None):
            return self if not copy else self.copy()
        return invoke("Cast", [self], {"dtype": name})[0]

    @property
    def stype(self) -> str:
        """ "default": arrays are dense."""
        return "default"

    def tostype(self, stype: str) -> ndarray:
        """Itself; raises OutOfScopeError for a sparse array."""
        if stype != "default":
            raise OutOfScopeError(f"{call_site()}: only dense arrays are supported, not {stype!r}")
        return self

    def as_np_ndarray(self) -> ndarray:
        """Itself."""
        return self

    as_nd_ndarray = as_np_ndarray

    def attach_grad(self, *_: Any, **__: Any) -> None:
        """Raise OutOfScopeError: there are no gradients."""
        raise no_gradients("attach_grad()")

    def backward(self, *_: Any, **__: Any) -> None:
        """Raise OutOfScopeError: there are no gradients."""
        raise no_gradients("backward()")

    @property
    def grad(self) -> None:
        """None, as of every array that no gradient was attached to."""


set_array_class(ndarray)


def rebind(array: ndarray, value: Value) -> None:
    """Let an array name another value; a variable stays bound to the array."""
    variable = array._value.variable
    fresh = value.alias()
    fresh.variable = variable
    fresh.owner = weakref.ref(array)
    array._value = fresh
    if variable is not None:
        note_parameter_change()


def reject_in_trace(array: ndarray) -> None:
    """Raise if arrays can't be changed now."""
    if current_trace() is not None:
        raise DeferredComputeError(
            f"{call_site()}: arrays can't be changed in place (+=, x[...] =, set_data) while a "
            "trace is recorded; make a new array"
        )


def waitall(*arrays: ndarray) -> None:
    """Compute arrays together, as one program for each device."""
    evaluate([array._value for array in arrays])
