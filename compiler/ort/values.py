"""Values and bindings of onnxruntime's interface, over numpy arrays in the CPU's memory."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from compiler.errors import InputError
from compiler.runtime.metadata import TensorInfo
from compiler.runtime.tensors import numpy_dtype

from .names import KnownNames

if TYPE_CHECKING:
    from .options import RunOptions
    from .session import InferenceSession

TYPE_NAMES = {"float32": "float", "float64": "double"}
"""onnxruntime's names of element types, where they are not numpy's."""


def type_name(dtype: Any) -> str:
    """onnxruntime's name of a tensor type, for example "tensor(float)"."""
    name = str(dtype)
    return f"tensor({TYPE_NAMES.get(name, name)})"


def dtype_name(kind: str) -> str:
    """numpy's name of the dtype of "tensor(float)"."""
    name = kind.removeprefix("tensor(").removesuffix(")")
    return {theirs: ours for ours, theirs in TYPE_NAMES.items()}.get(name, name)


ELEMENT_TYPES = (
    *("?", "float32", "uint8", "int8", "uint16", "int16", "int32", "int64", "str", "bool"),
    *("float16", "float64", "uint32", "uint64", "complex64", "complex128", "bfloat16"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "uint4", "int4"),
)
"""Names of dtypes by their number in ONNX, `TensorProto.DataType`."""


class OrtDevice(KnownNames):
    """A kind of device, by its number, and an index; values of Baton live on "cpu"."""

    _TYPES: ClassVar = {"cpu": 0, "gpu": 1, "cuda": 1, "fpga": 2, "npu": 3}
    _VENDORS: ClassVar = {"cuda": 0x10DE}

    def __init__(self, name: str, device_id: int, vendor_id: int = -1):
        if name not in self._TYPES:
            raise InputError(f"no device {name!r}; there are {', '.join(self._TYPES)}")
        self._name, self._id = name, device_id
        self._vendor = self._VENDORS.get(name, 0) if vendor_id < 0 else int(vendor_id)

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        """The device of a kind ("cpu", "cuda", "gpu", "npu") and index."""
        return OrtDevice(ort_device_name.lower(), device_id, vendor_id)

    def device_type(self) -> int:
        """The number of the kind: 0 is a CPU, 1 a GPU, 3 an NPU."""
        return self._TYPES[self._name]

    def device_id(self) -> int:
        """The index."""
        return self._id

    def device_mem_type(self) -> int:
        """0, the device's default memory."""
        return 0

    def device_vendor_id(self) -> int:
        """The vendor's PCI number; 0 for none."""
        return self._vendor


class OrtValue(KnownNames):
    """A tensor in the CPU's memory; the array is shared, not copied."""

    def __init__(self, array: np.ndarray):
        self._array = array

    @staticmethod
    def ortvalue_from_numpy(
        array: np.ndarray, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """The value of an array."""
        _require_cpu(device_type)
        return OrtValue(np.asarray(array))

    @staticmethod
    def ortvalue_from_numpy_with_onnx_type(data: np.ndarray, onnx_element_type: int) -> OrtValue:
        """The value of an array whose bytes are elements of ONNX's type of that number."""
        dtype = _dtype(onnx_element_type)
        if dtype.itemsize != data.dtype.itemsize:
            raise InputError(f"elements of {data.dtype} can't be read as {dtype}: the sizes differ")
        return OrtValue(data.view(dtype))

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int],
        element_type: Any = np.float32,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
    ) -> OrtValue:
        """A value of zeros; `element_type` is a numpy type, or the number of ONNX's."""
        _require_cpu(device_type)
        return OrtValue(np.zeros(tuple(shape), _dtype(element_type)))

    @staticmethod
    def from_dlpack(data: Any) -> OrtValue:
        """The value of a tensor of another library, whose memory is shared."""
        return OrtValue(np.from_dlpack(data))

    def numpy(self) -> np.ndarray:
        """The array itself."""
        return self._array

    def shape(self) -> list[int]:
        """Extents."""
        return list(self._array.shape)

    def data_type(self) -> str:
        """For example "tensor(float)"."""
        return type_name(self._array.dtype)

    def element_type(self) -> int:
        """The number of the element type in ONNX.

        Raises
        ------
        InputError
            ONNX has no number for it here.
        """
        name = str(self._array.dtype) if self._array.dtype.kind not in "OSU" else "str"
        if name not in ELEMENT_TYPES:
            raise InputError(f"ONNX has no element type for {name}")
        return ELEMENT_TYPES.index(name)

    def tensor_size_in_bytes(self) -> int:
        """Bytes of the elements."""
        return self._array.nbytes

    def device_name(self) -> str:
        """Always "cpu"."""
        return "cpu"

    def data_ptr(self) -> int:
        """Address of the first element."""
        return int(self._array.ctypes.data)

    def is_tensor(self) -> bool:
        """Always; sequences and maps are lists and dicts."""
        return True

    def is_tensor_sequence(self) -> bool:
        """Never."""
        return False

    def is_sparse_tensor(self) -> bool:
        """Never."""
        return False

    def has_value(self) -> bool:
        """Always."""
        return True

    def update_inplace(self, array: np.ndarray | OrtValue) -> None:
        """Copy the values of an array or value of this shape and dtype.

        Raises
        ------
        InputError
            It has another shape or dtype.
        """
        array = np.asarray(array)
        if array.shape != self._array.shape or array.dtype != self._array.dtype:
            raise InputError(
                f"a value of {array.dtype}{list(array.shape)} does not fit into one of "
                f"{self._array.dtype}{self.shape()}"
            )
        np.copyto(self._array, array)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self._array, dtype, copy=copy)

    def __dlpack__(self, **arguments: Any) -> Any:
        return self._array.__dlpack__(**arguments)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


class IOBinding(KnownNames):
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
        """Values of the bound outputs after a run, in the order of their binding; none before."""
        return [OrtValue(self._results[name]) for name in self._outputs if name in self._results]

    get_outputs_as_ortvaluevector = get_outputs

    def copy_outputs_to_cpu(self) -> list[np.ndarray]:
        """Copies of the bound outputs after a run."""
        return [value.numpy().copy() for value in self.get_outputs()]

    def run(self, run_options: RunOptions | None = None) -> None:
        """Run the session on what is bound.

        Raises
        ------
        InputError
            An input is missing or does not fit, or an output has another shape or dtype than the
            memory that is bound to it.
        """
        if not self._outputs:
            raise InputError("no output is bound; call bind_output")
        results = self._session.run(list(self._outputs), self._inputs, run_options)
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


SessionIOBinding = IOBinding


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
    dtype = _dtype(element_type)
    size = int(np.prod(shape, dtype="int64")) * dtype.itemsize
    memory = (ctypes.c_uint8 * size).from_address(address)
    return np.ndarray(tuple(shape), dtype, memoryview(memory))


def _dtype(element_type: Any) -> np.dtype:
    """The dtype of a numpy type, or of the number of ONNX's; raises InputError."""
    if not isinstance(element_type, int):
        return np.dtype(element_type)
    if not 0 < element_type < len(ELEMENT_TYPES):
        raise InputError(f"there is no element type {element_type} of ONNX's")
    return numpy_dtype(TensorInfo("", (), ELEMENT_TYPES[element_type]))
