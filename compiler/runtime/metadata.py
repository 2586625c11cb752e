"""Metadata of a library: tensors, devices, CPU features, the origin of each kernel.

The metadata travels inside the exported library as JSON and is read and checked before any of
the library's code is loaded, so everything in it is validated here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from compiler.errors import InputError, LoadError

FORMAT_VERSION = 1
ALIGNMENT = 64  # bytes; TVM's kernels expect their arguments to start at a multiple of this
OUTPUT_NAMES = "output_names"
"""Attribute of a module's `main` with the names of its results, where an importer knew them."""
UNKNOWN = -1
"""Extent, in an output's shape, that depends on the inputs' values (`nonzero`, `unique`)."""

_DTYPE_BITS = re.compile(r"(?:uint|int|float|bfloat)([1468]|16|32|64)(?:_\w+)?")


def listed(values: Sequence[object], most: int = 16) -> str:
    """Inputs or outputs for a message: the first ones, and how many more there are."""
    more = f" and {len(values) - most} more" if len(values) > most else ""
    return ", ".join(map(str, values[:most])) + more or "none"


@dataclass(frozen=True)
class TensorInfo:
    """Name, shape and dtype of one tensor."""

    name: str
    # A string is an extent that running the model tells: in an input the name of a symbol, in an
    # output an expression over the inputs' symbols. Outputs may have `UNKNOWN` extents.
    shape: tuple[int | str, ...]
    dtype: str  # TVM's name, for example "float32" or "bool"
    # Kind of the device that the tensor lives on; "" is the library's first device
    device: str = ""

    @property
    def is_static(self) -> bool:
        """Whether every extent is a known number."""
        return all(isinstance(extent, int) and extent >= 0 for extent in self.shape)

    @property
    def static_shape(self) -> tuple[int, ...]:
        """The shape of a tensor whose extents are known. Raises InputError: one is a symbol."""
        if any(isinstance(extent, str) for extent in self.shape):
            raise InputError(
                f"{self} has dynamic extents; give it a shape of numbers (shape=, --shape, or "
                "--extent for one symbol)"
            )
        return tuple(int(extent) for extent in self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes that a tensor that `is_static` takes."""
        return (math.prod(self.static_shape) * dtype_bits(self.dtype) + 7) // 8

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class ParamInfo(TensorInfo):
    """A weight, with the position of its bytes in the library's section of weights."""

    offset: int = 0


@dataclass(frozen=True)
class KVCacheInfo:
    """Inputs that are buffers for the keys and values of a text; a run adds rows in place."""

    symbol: str  # counts the rows that are there before a run
    rows: str  # the input of type int8 that has this extent; its elements are unused
    grows_by: str | int  # the rows that a run adds: a symbol of the inputs, or a number
    # Name of each buffer, and along which axis rows lie. It has room for as many as the input's
    # extent there is.
    tensors: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Metadata:
    """Description of a built library."""

    mod_name: str  # the name under which the library makes its executor, as in `lib[mod_name](dev)`
    # inputs, outputs: in the order of the parameters and results of the model, under its own names;
    # results that have none are "output0", "output1"
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    params: tuple[ParamInfo, ...] = ()  # weights, in the order of the trailing parameters of `main`
    # Device kinds in the order in which the executable numbers them, for example ("cpu",) or
    # ("cuda", "cpu")
    devices: tuple[str, ...] = ("cpu",)
    target: str = ""  # the target that the library was built for, as a string or as JSON
    # CPU features that the host code may use, as LLVM names them
    cpu_features: tuple[str, ...] = ()
    report: dict[str, Any] = field(default_factory=dict)  # JSON-able build report
    # JSON-able description of the subgraphs that backends took
    partition: dict[str, Any] = field(default_factory=dict)
    # The model's own names of the weights that were bound at build time. An executor accepts and
    # ignores these names among keyword inputs, since the values are in the library.
    bound_params: tuple[str, ...] = ()
    tvm_version: str = ""  # tvm_version, baton_version: what built the library
    baton_version: str = ""
    # The largest extent that a symbol of the inputs may have, of those that have a bound
    bounds: dict[str, int] = field(default_factory=dict)
    kv_cache: KVCacheInfo | None = None

    def with_params(self, tensors: Iterable[tuple[str, Any]]) -> Metadata:
        """These metadata for the given weights, laid out one after the other and aligned.

        `tensors`: name and value of each weight, in the order of `main`'s trailing parameters.
        """
        known_device = {param.name: param.device for param in self.params}
        params = []
        offset = 0
        for name, tensor in tensors:
            shape = tuple(int(extent) for extent in tensor.shape)
            info = ParamInfo(name, shape, str(tensor.dtype), known_device.get(name, ""), offset)
            params.append(info)
            offset = aligned(offset + info.nbytes)
        return replace(self, params=tuple(params))

    @property
    def weights_nbytes(self) -> int:
        """Bytes of the section that holds all weights, the gaps between them included."""
        return max((aligned(param.offset + param.nbytes) for param in self.params), default=0)

    def to_json(self) -> str:
        """The metadata as one JSON object."""
        return json.dumps({"format": FORMAT_VERSION, **asdict(self)}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Metadata:
        """Read what `to_json` wrote.

        Raises LoadError: the text is not a JSON object of this format; the message names the field.
        """
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise LoadError(f"the library's metadata is not valid JSON: {error}") from error
        return _Reader(document).metadata()


def dtype_bits(dtype: str) -> int:
    """Bits of one element of a TVM dtype such as "float32", "int4" or "bool".

    Raises ValueError: the dtype is a vector's, a handle, or unknown.
    """
    if dtype == "bool":
        return 8
    match = _DTYPE_BITS.fullmatch(dtype)
    if match is None:
        match = re.fullmatch(r"float(\d+)_e\d+m\d+\w*", dtype)
    if match is None:
        raise ValueError(f"dtype {dtype!r} is not one that a tensor of a library can have")
    return int(match.group(1))


def aligned(offset: int, alignment: int = ALIGNMENT) -> int:
    """The least multiple of `alignment` that is not below `offset`."""
    return -(-offset // alignment) * alignment


class _Reader:
    """Turns a parsed JSON document into Metadata, one checked field at a time."""

    def __init__(self, document: Any) -> None:
        if not isinstance(document, dict):
            raise LoadError("the library's metadata is not a JSON object")
        version = document.get("format")
        if version != FORMAT_VERSION:
            raise LoadError(
                f"the library's metadata has format {version!r}, but this version of Baton reads "
                f"format {FORMAT_VERSION}; build and export the model again"
            )
        self._document = document

    def metadata(self) -> Metadata:
        metadata = Metadata(
            mod_name=self._field("mod_name", str),
            inputs=tuple(self._tensor("inputs", item) for item in self._field("inputs", list)),
            outputs=tuple(self._tensor("outputs", item) for item in self._field("outputs", list)),
            params=tuple(self._param(item) for item in self._field("params", list)),
            devices=self._strings("devices"),
            target=self._field("target", str),
            cpu_features=self._strings("cpu_features"),
            report=self._field("report", dict),
            partition=self._field("partition", dict),
            bound_params=self._strings("bound_params"),
            tvm_version=self._field("tvm_version", str),
            baton_version=self._field("baton_version", str),
            bounds=self._bounds(),
            kv_cache=self._kv_cache(),
        )
        self._require_buffers(metadata)
        self._require_distinct_names(metadata)
        self._require_disjoint_params(metadata)
        if not metadata.devices:
            raise _bad("devices", "is empty")
        for tensor in (*metadata.inputs, *metadata.outputs, *metadata.params):
            if tensor.device not in ("", "cpu", *metadata.devices):
                raise _bad("devices", f"lacks {tensor.device!r}, where {tensor.name!r} is")
        return metadata

    def _field(self, name: str, kind: type) -> Any:
        value = self._document.get(name)
        if not isinstance(value, kind):
            raise _bad(name, f"should be a {kind.__name__} and is {value!r:.80}")
        return value

    def _strings(self, name: str) -> tuple[str, ...]:
        values = self._field(name, list)
        if not all(isinstance(value, str) for value in values):
            raise _bad(name, "should hold strings only")
        return tuple(values)

    def _bounds(self) -> dict[str, int]:
        """Libraries of before there were symbols lack the field."""
        bounds = self._document.get("bounds", {})
        if not isinstance(bounds, dict) or not all(map(_is_natural, bounds.values())):
            raise _bad("bounds", f"should give numbers by name and is {bounds!r:.80}")
        return bounds

    def _tensor(self, name: str, item: Any) -> TensorInfo:
        if not isinstance(item, dict):
            raise _bad(name, f"holds {item!r:.80} instead of a tensor's description")
        shape = item.get("shape")
        if not isinstance(shape, list) or not all(_is_extent(name, extent) for extent in shape):
            raise _bad(name, f"holds the shape {shape!r:.80}")
        texts = [item.get(key) for key in ("name", "dtype", "device")]
        if not all(isinstance(text, str) for text in texts):
            raise _bad(name, f"holds a tensor with name, dtype, device {texts!r:.120}")
        info = TensorInfo(str(texts[0]), tuple(shape), str(texts[1]), str(texts[2]))
        try:
            dtype_bits(info.dtype)
        except ValueError as error:
            raise _bad(name, f"holds a tensor {info.name!r}: {error}") from error
        return info

    def _kv_cache(self) -> KVCacheInfo | None:
        """Libraries without one lack the field, or have null."""
        item = self._document.get("kv_cache")
        if item is None:
            return None
        item = item if isinstance(item, dict) else {}
        symbol, rows, grows_by = (item.get(key) for key in ("symbol", "rows", "grows_by"))
        pairs = item.get("tensors")
        tensors = tuple(map(_named_axis, pairs)) if isinstance(pairs, list) else ()
        texts = isinstance(symbol, str) and isinstance(rows, str)
        grows = isinstance(grows_by, str) or _is_natural(grows_by)
        if not tensors or None in tensors or not texts or not grows:
            raise _bad("kv_cache", f"is {item!r:.120}")
        return KVCacheInfo(
            str(symbol),
            str(rows),
            grows_by,  # type: ignore[arg-type]
            tuple(each for each in tensors if each is not None),
        )

    def _require_buffers(self, metadata: Metadata) -> None:
        """Raise where the cache's tensors are not inputs of the shapes that executors make."""
        cache = metadata.kv_cache
        if cache is None:
            return
        inputs = {info.name: info.shape for info in metadata.inputs}
        if inputs.get(cache.rows) != (cache.symbol,):
            raise _bad("kv_cache", f"counts rows by the input {cache.rows!r}")
        symbols = {extent for shape in inputs.values() for extent in shape}
        if isinstance(cache.grows_by, str) and cache.grows_by not in symbols:
            raise _bad("kv_cache", f"grows by {cache.grows_by!r}, which no input has")
        rooms = set()
        for name, axis in cache.tensors:
            shape = inputs.get(name, ())
            if axis >= len(shape) or not all(isinstance(extent, int) for extent in shape):
                raise _bad("kv_cache", f"has the input {name!r}, which is not a buffer")
            rooms.add(shape[axis])
        if len(rooms) != 1:
            raise _bad("kv_cache", "has buffers of different room")

    def _param(self, item: Any) -> ParamInfo:
        info = self._tensor("params", item)
        offset = item.get("offset")
        if not _is_natural(offset) or offset % ALIGNMENT:
            raise _bad("params", f"places {info.name!r} at the offset {offset!r:.40}")
        return ParamInfo(info.name, info.shape, info.dtype, info.device, offset)

    def _require_distinct_names(self, metadata: Metadata) -> None:
        names = [info.name for info in (*metadata.inputs, *metadata.params)]
        if len(set(names)) != len(names):
            raise _bad("inputs or params", "gives two tensors one name")

    def _require_disjoint_params(self, metadata: Metadata) -> None:
        end = 0
        for param in metadata.params:
            if param.offset < end:
                raise _bad("params", f"lets {param.name!r} overlap the weight before it")
            end = param.offset + param.nbytes


def _named_axis(pair: Any) -> tuple[str, int] | None:
    """["past_key_0", 2] as it should be; None for anything else."""
    fits = isinstance(pair, list) and len(pair) == 2
    if not fits or not isinstance(pair[0], str) or not _is_natural(pair[1]):
        return None
    return pair[0], pair[1]


def _is_extent(field: str, value: Any) -> bool:
    """Whether a tensor of that field may have this extent."""
    if field == "outputs" and value == UNKNOWN:
        return True
    is_symbol = field != "params" and isinstance(value, str) and value != ""
    return is_symbol or _is_natural(value)


def _is_natural(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _bad(name: str, problem: str) -> LoadError:
    return LoadError(f"the library's metadata is corrupt: {name} {problem}; export the model again")
