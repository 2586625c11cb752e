"""Reading of a serialized ONNX model without copying its weights.

Parsing a `ModelProto` copies every weight once and reading it from the parsed message copies it
again. Here the bytes of a model are split into a small model, which is parsed, and views of the
weights where they lie. The format is protocol buffers' wire format
(https://protobuf.dev/programming-guides/encoding), the field numbers are those of `onnx.proto`.
"""

from __future__ import annotations

from collections.abc import Iterator

MODEL_GRAPH = 7
GRAPH_INITIALIZER = 5
TENSOR_NAME = 8
TENSOR_RAW_DATA = 9
KEEP_BYTES = 1024
"""Weights of up to so many bytes stay in the small model."""

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


class WireError(ValueError):
    """The bytes are not protocol buffers message, or end too early."""


def split_weights(data: memoryview) -> tuple[bytes, dict[str, memoryview]]:
    """Split a serialized `ModelProto`.

    Returns the message without the raw data of its main graph's large initializers, and these data
    by initializer name, as views of `data`. Raises WireError if it is malformed or truncated.
    """
    weights: dict[str, memoryview] = {}
    path = (MODEL_GRAPH, GRAPH_INITIALIZER)
    return _without_weights(data, 0, len(data), path, weights), weights


def _without_weights(
    data: memoryview, start: int, stop: int, path: tuple[int, ...], weights: dict[str, memoryview]
) -> bytes:
    """The message in data[start:stop] without the weights in the fields below `path`."""
    if not path:
        return _split_tensor(data, start, stop, weights)
    chunks: list[bytes] = []
    for number, wire_type, begin, content, end in _fields(data, start, stop):
        large = end - content > KEEP_BYTES or number == MODEL_GRAPH
        if number == path[0] and wire_type == _LENGTH and large:
            inner = _without_weights(data, content, end, path[1:], weights)
            chunks.append(_encode(number << 3 | _LENGTH) + _encode(len(inner)) + inner)
        else:
            chunks.append(bytes(data[begin:end]))
    return b"".join(chunks)


def _split_tensor(data: memoryview, start: int, stop: int, weights: dict[str, memoryview]) -> bytes:
    fields = list(_fields(data, start, stop))
    names = [
        bytes(data[content:end]) for number, _, _, content, end in fields if number == TENSOR_NAME
    ]
    if len(names) != 1:
        return bytes(data[start:stop])
    chunks: list[bytes] = []
    for number, _, begin, content, end in fields:
        if number == TENSOR_RAW_DATA and end - content > KEEP_BYTES:
            weights[names[0].decode("utf-8", "replace")] = data[content:end]
        else:
            chunks.append(bytes(data[begin:end]))
    return b"".join(chunks)


def _fields(data: memoryview, start: int, stop: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Fields in data[start:stop]: number, wire type, begin (key), content (value), end."""
    position = start
    while position < stop:
        begin = position
        key, position = _varint(data, position, stop)
        number, wire_type = key >> 3, key & 7
        content = position
        if wire_type == _VARINT:
            _, end = _varint(data, position, stop)
        elif wire_type == _FIXED64:
            end = position + 8
        elif wire_type == _FIXED32:
            end = position + 4
        elif wire_type == _LENGTH:
            length, content = _varint(data, position, stop)
            end = content + length
        else:
            raise WireError(f"byte {begin} begins no field (wire type {wire_type})")
        if number == 0 or end > stop:
            raise WireError(
                f"the field at byte {begin} ends at byte {end}, beyond byte {stop}"
                if number
                else f"byte {begin} begins no field (number 0)"
            )
        yield number, wire_type, begin, content, end
        position = end


def _varint(data: memoryview, position: int, stop: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= stop:
            raise WireError(f"the message ends at byte {stop}, within a number")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise WireError(f"the number that ends at byte {position} is too long")


def _encode(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
