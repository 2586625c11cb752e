"""Reads the sections of ELF files, appends sections to them, and makes objects of sections alone.

The appended sections are not part of the program image: the dynamic loader never looks at them,
`readelf` and `objcopy` show them, `strip` keeps them. Appending writes their bytes once, where a
linker would hold them in memory and write them twice, and does not move code away from data.
Source: System V ABI, chapter "Object Files"; field names are the standard's.
"""

from __future__ import annotations

import struct
import zlib
from collections import namedtuple
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

MAGIC = b"\x7fELF"

_IDENT_64_LITTLE_ENDIAN = MAGIC + b"\x02\x01"
_HEADER_LAYOUT = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT_LAYOUT = struct.Struct("<IIQQQQQQ")
_SECTION_LAYOUT = struct.Struct("<IIQQQQIIQQ")
_LOADED_SEGMENT, _PROGBITS, _STRTAB, _NOBITS = 1, 1, 3, 8
_RELOCATABLE = 1
_MACHINES = {21: "powerpc64", 22: "s390x", 62: "x86-64", 183: "aarch64", 243: "riscv64"}
_MAX_SECTIONS = 0xFF00  # larger counts use an extension that no library of Baton's needs
_CHUNK = 1 << 20
_MAX_IMAGE = 1 << 34  # bytes; code models of LLVM reach 2 GiB, sparse files reach anything


class MalformedElfError(ValueError):
    """The file is not a 64-bit little-endian ELF file, or its tables point outside of it."""


_Header = namedtuple(
    "_Header",
    "ident type machine version entry phoff shoff flags ehsize phentsize phnum shentsize shnum "
    "shstrndx",
)
_Segment = namedtuple("_Segment", "type flags offset vaddr paddr filesz memsz align")
_SectionHeader = namedtuple(
    "_SectionHeader", "name type flags addr offset size link info addralign entsize"
)


@dataclass(frozen=True)
class Section:
    """Where a section's bytes lie in the file."""

    offset: int
    size: int


@dataclass(frozen=True)
class NewSection:
    """A section to append."""

    name: str
    alignment: int  # the section's offset in the file becomes a multiple of this
    write: Callable[[BinaryIO], None]  # writes the section's bytes to the stream that it gets


def read_sections(file: BinaryIO) -> dict[str, Section]:
    """Name, offset and size of each section that has bytes in the file.

    Raises MalformedElfError: not such a file, or cut off.
    """
    headers, names = _read_section_table(file, _read_header(file))
    end = _size_of(file)
    sections = {}
    for entry in headers:
        if entry.type == _NOBITS:
            continue
        if entry.offset + entry.size > end:
            raise MalformedElfError("a section reaches beyond the end of the file")
        sections[_name_at(names, entry.name)] = Section(entry.offset, entry.size)
    return sections


def machine(file: BinaryIO) -> str:
    """The kind of processor that the file is for, "x86-64" or "aarch64" for example.

    Raises MalformedElfError: not such a file.
    """
    number = _read_header(file).machine
    return _MACHINES.get(number, f"ELF machine {number}")


def append_sections(file: BinaryIO, sections: Sequence[NewSection]) -> None:
    """Append sections to an ELF file that is open for reading and writing.

    The file's header is written last; until then the file is the ELF file that it was.

    Raises MalformedElfError: not a 64-bit little-endian ELF file. Raises OSError: writing failed.
    """
    header = _read_header(file)
    headers, names = _read_section_table(file, header)
    if len(headers) + len(sections) >= _MAX_SECTIONS:
        raise MalformedElfError(f"the file has {len(headers)} sections, too many to add to")

    file.seek(0, 2)
    for section in sections:
        offset = _pad(file, section.alignment)
        section.write(file)
        headers.append(
            _SectionHeader(
                name=len(names),
                type=_PROGBITS,
                flags=0,
                addr=0,
                offset=offset,
                size=file.tell() - offset,
                link=0,
                info=0,
                addralign=section.alignment,
                entsize=0,
            )
        )
        names += section.name.encode() + b"\0"

    names_header = headers[header.shstrndx]
    headers[header.shstrndx] = names_header._replace(offset=file.tell(), size=len(names))
    file.write(names)
    table_offset = _pad(file, 8)
    file.write(b"".join(_SECTION_LAYOUT.pack(*entry) for entry in headers))

    file.seek(0)
    file.write(_HEADER_LAYOUT.pack(*header._replace(shoff=table_offset, shnum=len(headers))))
    file.flush()


def write_object(file: BinaryIO, like: BinaryIO, sections: Sequence[NewSection]) -> None:
    """Write an object file that has no code: a linker copies its sections into what it links.

    `file`: empty, open for reading and writing. `like`: an object of the machine to link for.
    Raises MalformedElfError: `like` is not a 64-bit little-endian ELF file.
    """
    names = b"\0.shstrtab\0"
    name_table = _SectionHeader(1, _STRTAB, 0, 0, _HEADER_LAYOUT.size, len(names), 0, 0, 1, 0)
    table_offset = _HEADER_LAYOUT.size + len(names) + (-len(names) % 8)
    header = _read_header(like)._replace(
        type=_RELOCATABLE, entry=0, phoff=0, phentsize=0, phnum=0, shoff=table_offset,
        ehsize=_HEADER_LAYOUT.size, shentsize=_SECTION_LAYOUT.size, shnum=2, shstrndx=1,
    )  # fmt: skip
    file.write(_HEADER_LAYOUT.pack(*header) + names)
    _pad(file, 8)
    file.write(bytes(_SECTION_LAYOUT.size) + _SECTION_LAYOUT.pack(*name_table))
    # Without this section linkers take it that the stack must be executable.
    no_executable_stack = NewSection(".note.GNU-stack", 1, lambda stream: None)
    append_sections(file, [no_executable_stack, *sections])


def image_checksum(file: BinaryIO) -> int:
    """CRC-32 of what the dynamic loader maps, without the ELF header.

    The header holds the place of the section table, which appending sections and `strip` change.

    Raises MalformedElfError: not such a file, or cut off.
    """
    header = _read_header(file)
    segments = map(_Segment._make, _read_table(file, _SEGMENT_LAYOUT, header.phoff, header.phnum))
    end = _size_of(file)
    checksum = total = 0
    for segment in segments:
        if segment.type != _LOADED_SEGMENT:
            continue
        start, stop = segment.offset, segment.offset + segment.filesz
        if stop > end:
            raise MalformedElfError("the program reaches beyond the end of the file")
        total += segment.filesz
        if total > _MAX_IMAGE:
            raise MalformedElfError(f"the program has more than {_MAX_IMAGE} bytes")
        checksum = range_checksum(file, max(start, _HEADER_LAYOUT.size), stop, checksum)
    return checksum


def range_checksum(file: BinaryIO, start: int, stop: int, checksum: int = 0) -> int:
    """CRC-32 of the bytes from `start` up to `stop`, continuing `checksum`."""
    file.seek(start)
    remaining = stop - start
    while remaining > 0:
        chunk = file.read(min(_CHUNK, remaining))
        if not chunk:
            raise MalformedElfError("the file ended early")
        checksum = zlib.crc32(chunk, checksum)
        remaining -= len(chunk)
    return checksum


def _read_header(file: BinaryIO) -> _Header:
    file.seek(0)
    data = file.read(_HEADER_LAYOUT.size)
    if len(data) < _HEADER_LAYOUT.size or not data.startswith(_IDENT_64_LITTLE_ENDIAN):
        raise MalformedElfError("not a 64-bit little-endian ELF file")
    header = _Header._make(_HEADER_LAYOUT.unpack(data))
    if header.phnum and header.phentsize != _SEGMENT_LAYOUT.size:
        raise MalformedElfError("the program header table has entries of an unknown size")
    if header.shnum and header.shentsize != _SECTION_LAYOUT.size:
        raise MalformedElfError("the section header table has entries of an unknown size")
    return header


def _read_section_table(file: BinaryIO, header: _Header) -> tuple[list[_SectionHeader], bytes]:
    """The section headers and the table of their names."""
    if not header.shnum:
        raise MalformedElfError("the file has no section header table")
    table = _read_table(file, _SECTION_LAYOUT, header.shoff, header.shnum)
    headers = [_SectionHeader._make(fields) for fields in table]
    if header.shstrndx >= len(headers):
        raise MalformedElfError("the table of section names is missing")
    names = headers[header.shstrndx]
    if names.offset + names.size > _size_of(file):
        raise MalformedElfError("the table of section names lies beyond the end of the file")
    file.seek(names.offset)
    return headers, file.read(names.size)


def _read_table(
    file: BinaryIO, layout: struct.Struct, offset: int, count: int
) -> Iterator[tuple[Any, ...]]:
    size = layout.size * count
    if offset + size > _size_of(file):
        raise MalformedElfError("a header table lies beyond the end of the file")
    file.seek(offset)
    return layout.iter_unpack(file.read(size))


def _name_at(names: bytes, start: int) -> str:
    stop = names.find(b"\0", start)
    if stop < 0:
        raise MalformedElfError("a section's name lies outside the table of names")
    return names[start:stop].decode(errors="replace")


def _size_of(file: BinaryIO) -> int:
    return file.seek(0, 2)


def _pad(file: BinaryIO, alignment: int) -> int:
    """Write zeros up to the next multiple of `alignment`; returns the position there."""
    position = file.tell()
    padding = -position % alignment
    file.write(bytes(padding))
    return position + padding
