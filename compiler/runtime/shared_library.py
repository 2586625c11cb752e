"""A library's file as it is written: what was linked, then the sections of weights and metadata.

Nothing here needs TVM, whose import takes longer than the rest.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from compiler.errors import BatonError, ExportError
from compiler.runtime import container, elf
from compiler.runtime.metadata import Metadata

WriteWeights = Callable[[BinaryIO], int]
"""Writes the block of weights to a stream, and returns its CRC-32."""


def write_shared_library(
    draft: Path, image: bytes, metadata: Metadata, weights: WriteWeights | None
) -> None:
    """Write a new file.

    `image`: what the linker made. `weights`: None for a library that gets its weights at run time.
    Raises MalformedElfError: the image is not a 64-bit little-endian ELF file. Raises OSError: it
    can't be written.
    """
    descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o777)
    with open(descriptor, "r+b") as file:
        file.write(image)
        elf.append_sections(file, sections(metadata, elf.image_checksum(file), weights))


def sections(
    metadata: Metadata, code_checksum: int, weights: WriteWeights | None
) -> list[elf.NewSection]:
    """The weights and, written after them, the metadata."""
    checksum = 0

    def write_weights(stream: BinaryIO) -> None:
        nonlocal checksum
        if weights is not None:
            checksum = weights(stream)

    def write_metadata(stream: BinaryIO) -> None:
        size = 0 if weights is None else metadata.weights_nbytes
        stream.write(container.Envelope(metadata, code_checksum, checksum, size).to_bytes())

    return [
        elf.NewSection(container.WEIGHTS, mmap.PAGESIZE, write_weights),
        elf.NewSection(container.METADATA, 8, write_metadata),
    ]


@contextmanager
def explained(target: Path) -> Iterator[None]:
    """Turn whatever goes wrong while writing into an ExportError that names the destination."""
    try:
        yield
    except BatonError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise ExportError(f"can't write {str(target)!r}: {reason}") from error
    except elf.MalformedElfError as error:
        raise ExportError(
            f"can't export to {str(target)!r}: the linker's result is {error}; Baton writes 64-bit "
            "little-endian ELF libraries only"
        ) from error
    except Exception as error:
        raise ExportError(
            f"can't export to {str(target)!r}: {type(error).__name__}: {error}"
        ) from error
