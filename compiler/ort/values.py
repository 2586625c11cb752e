"""Values and bindings of onnxruntime's interface, over numpy arrays in the CPU's memory."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler.errors import InputError

if TYPE_CHECKING:
    from .session import InferenceSession

TYPE_NAMES = {"float32": "float", "float64": "double"}
"""onnxruntime's names of element types, where they are not numpy's."""


def type_name(dtype: Any) -> str:
    """onnxruntime's name of a tensor type, for example "tensor(float)"."""
    name = str(dtype)
    return f"tensor({TYPE_NAMES.get(name, name)})"


class OrtValue:
    """A tensor in the CPU's memory; the array is shared, not copied."""

    def __init__(self, array: np.ndarray):
        self._array = array

    @staticmethod
    def ortvalue_from_numpy(
        array: np.ndarray, device_type: str = "cpu", device_id: int = 0
    ) -> OrtValue:
        """The value of an array."""
        _require_cpu(device_type)
        return OrtValue(np.asarray(array))

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int],
        element_type: Any = np.float32,
        device_type: str = "cpu",
        device_id: int = 0,
    ) -> OrtValue:
        """A value of zeros; `element_type` is a numpy type."""
        _require_cpu(device_type)
        return OrtValue(np.zeros(tuple(shape), element_type))

    def numpy(self) -> np.ndarray:
        """The array itself."""
        return self._array

    def shape(self) -> list[int]:
        """Extents."""
        return list(self._array.shape)

    def data_type(self) -> str:
        """For example "tensor(float)"."""
        return type_name(self._array.dtype)

    def device_name(self) -> str:
        """Always "cpu"."""
        return "cpu"

    def data_ptr(self) -> int:
        """Address of the first element."""
        return int(self._array.ctypes.data)

    def is_tensor(self) -> bool:
        """Always; sequences and maps are lists and dicts."""
        return True

    def has_value(self) -> bool:
        """Always."""
        return True

    def update_inplace(self, array: np.ndarray) -> None:
        """Copy the values of an array of this shape and dtype.

        Raises
        ------
        InputError
            It has another shape or dtype.
        """
        if array.shape != self._array.shape or array.dtype != self._array.dtype:
            raise InputError(
                f"a value of {array.dtype}{list(array.shape)} does not fit into one of "
                f"{self._array.dtype}{self.shape()}"
            )
        np.copyto(self._array, array)

    def __dlpack__(self, **arguments: Any) -> Any:
        return self._array.__dlpack__(**arguments)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


class IOBinding:
    """Arrays bound to inputs and outputs of a session; `InferenceSession.io_binding` makes one."""

    def __init__(self, session: InferenceSession):
        self._session = session
        self._inputs: dict[str, np.ndarray] = {}
        self._outputs: dict[str, np.ndarray | None] = {}
        self._results: dict[str, np.ndarray] = {}

    def bind_cpu_input(self, name: str, array: np.ndarray) -> None:
        """Read an input from an array when the session runs."""
        self._inputs[name] = np.asarray(array)

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: Any,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Read an input from memory at an address, which must stay valid."""
        _require_cpu(device_type)
        self._inputs[name] = _array_at(buffer_ptr, element_type, shape)

    def bind_ortvalue_input(self, name: str, value: OrtValue) -> None:
        """Read an input from a value."""
        self._inputs[name] = value.numpy()

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Ask for an output, in memory at an address or in an array of the session's."""
        _require_cpu(device_type)
        if buffer_ptr is None:
            self._outputs[name] = None
        else:
            self._outputs[name] = _array_at(buffer_ptr, element_type, shape or ())

    def bind_ortvalue_output(self, name: str, value: OrtValue) -> None:
        """Write an output into a value."""
        self._outputs[name] = value.numpy()

    def clear_binding_inputs(self) -> None:
        """Forget the inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forget the outputs."""
        self._outputs.clear()
        self._results.clear()

    def synchronize_inputs(self) -> None:
        """Nothing to wait for."""

    def synchronize_outputs(self) -> None:
        """Nothing to wait for."""

    def get_outputs(self) -> list[OrtValue]:
        """Values of the bound outputs after a run, in the order of their binding."""
        return [OrtValue(self._results[name]) for name in self._outputs]

    def copy_outputs_to_cpu(self) -> list[np.ndarray]:
        """Copies of the bound outputs after a run."""
        return [self._results[name].copy() for name in self._outputs]

    def run(self) -> None:
        """Run the session on what is bound.

        Raises
        ------
        InputError
            An input is missing or does not fit, or an output has another shape or dtype than the
            memory that is bound to it.
        """
        if not self._outputs:
            raise InputError("no output is bound; call bind_output")
        results = self._session.run(list(self._outputs), self._inputs)
        for (name, array), result in zip(self._outputs.items(), results):
            if array is None:
                self._results[name] = result
                continue
            if array.shape != result.shape or array.dtype != result.dtype:
                raise InputError(
                    f"output {name!r} is {result.dtype}{list(result.shape)}; the memory bound to "
                    f"it is {array.dtype}{list(array.shape)}"
                )
            np.copyto(array, result)
            self._results[name] = array


def arrays_of(feed: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays of a request, whose values may be `OrtValue`s."""
    return {
        name: value.numpy() if isinstance(value, OrtValue) else value
        for name, value in feed.items()
    }


def _require_cpu(device_type: str) -> None:
    if device_type != "cpu":
        raise InputError(
            f"values live in the CPU's memory, not on {device_type!r}; libraries copy them"
        )


def _array_at(address: int, element_type: Any, shape: Sequence[int]) -> np.ndarray:
    dtype = np.dtype(element_type)
    size = int(np.prod(shape, dtype="int64")) * dtype.itemsize
    memory = (ctypes.c_uint8 * size).from_address(address)
    return np.frombuffer(memory, dtype).reshape(tuple(shape))
