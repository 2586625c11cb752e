"""The envelope around a library's metadata: magic, version, checksums.

    ELF section                    content
    `.baton.weights`               the block of weights (compiler.runtime.weights)
    `.baton.metadata`              the envelope: the fixed fields below, then the metadata as JSON

A `.so` has both, a `.tar` an object file with both, so that whoever links its members, as TVM's RPC
servers do, gets a library. Archives of Baton 0.1.0 have a member for each.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from compiler.errors import LoadError
from compiler.runtime.metadata import Metadata

WEIGHTS = ".baton.weights"
METADATA = ".baton.metadata"
OBJECT = "baton.o"

_MAGIC = b"BATON\0\0\1"
# magic, checksum of the metadata, of the code, of the weights, bytes of metadata, of weights
_FIELDS = struct.Struct("<8sIIIxxxxQQ")


@dataclass(frozen=True)
class Envelope:
    """Metadata and what is needed to tell whether the rest of the file is whole."""

    metadata: Metadata
    # CRC-32 of the program: of the mapped segments of a `.so`, of the objects in a `.tar`
    code_checksum: int
    weights_checksum: int  # CRC-32 of the block of weights
    # Bytes of the block of weights; 0 when the library was exported without its weights
    weights_nbytes: int

    def to_bytes(self) -> bytes:
        """The bytes of the section or archive member."""
        text = self.metadata.to_json().encode()
        fields = _FIELDS.pack(
            _MAGIC,
            zlib.crc32(text),
            self.code_checksum,
            self.weights_checksum,
            len(text),
            self.weights_nbytes,
        )
        return fields + text

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Envelope:
        """Read what `to_bytes` wrote.

        Raises LoadError: corrupt, or written by another version of Baton.
        """
        if len(data) < _FIELDS.size or not data.startswith(_MAGIC):
            raise LoadError(f"{where}: the metadata are of another version of Baton, or corrupt")
        _, text_checksum, code, weights, text_nbytes, weights_nbytes = _FIELDS.unpack_from(data)
        text = data[_FIELDS.size :]
        if len(text) != text_nbytes or zlib.crc32(text) != text_checksum:
            raise LoadError(f"{where}: the metadata are corrupt; export the model again")
        metadata = Metadata.from_json(text)
        if weights_nbytes not in (0, metadata.weights_nbytes):
            raise LoadError(
                f"{where}: holds {weights_nbytes} bytes of weights where its metadata describe "
                f"{metadata.weights_nbytes}; export the model again"
            )
        return cls(metadata, code, weights, weights_nbytes)
