from __future__ import annotations

import io
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from compiler.runtime import elf


@pytest.fixture(scope="module")
def shared_library(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("elf")
    source = folder / "answer.c"
    source.write_text("int answer(void) { return 42; }\n")
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("needs a C compiler")
    library = folder / "answer.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    return library


def with_sections(library: Path, path: Path) -> Path:
    shutil.copy(library, path)
    with open(path, "r+b") as file:
        elf.append_sections(
            file,
            [
                elf.NewSection(".first", 4096, lambda stream: stream.write(b"one" * 1000)),
                elf.NewSection(".second", 8, lambda stream: stream.write(b"two")),
            ],
        )
    return path


def contents(path: Path, name: str) -> bytes:
    with open(path, "rb") as file:
        section = elf.read_sections(file)[name]
        file.seek(section.offset)
        return file.read(section.size)


def test_appended_sections_are_read_back_aligned(shared_library, tmp_path):
    path = with_sections(shared_library, tmp_path / "a.so")
    assert contents(path, ".first") == b"one" * 1000
    assert contents(path, ".second") == b"two"
    with open(path, "rb") as file:
        assert elf.read_sections(file)[".first"].offset % 4096 == 0


def test_sections_that_were_there_stay(shared_library, tmp_path):
    path = with_sections(shared_library, tmp_path / "a.so")
    assert contents(path, ".text") == contents(shared_library, ".text")


def test_the_library_still_loads_and_runs(shared_library, tmp_path):
    path = with_sections(shared_library, tmp_path / "a.so")
    program = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).answer())"
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, check=True)
    assert done.stdout.strip() == b"42"


def test_the_image_checksum_ignores_appended_sections_but_not_the_code(shared_library, tmp_path):
    path = with_sections(shared_library, tmp_path / "a.so")
    with open(shared_library, "rb") as before, open(path, "r+b") as after:
        assert elf.image_checksum(after) == elf.image_checksum(before)
        text = elf.read_sections(after)[".text"]
        after.seek(text.offset)
        after.write(b"\xcc")
        assert elf.image_checksum(after) != elf.image_checksum(before)


def test_strip_keeps_the_sections_and_the_image_checksum(shared_library, tmp_path):
    if shutil.which("strip") is None:
        pytest.skip("needs strip")
    path = with_sections(shared_library, tmp_path / "a.so")
    with open(path, "rb") as file:
        before = elf.image_checksum(file)
    subprocess.run(["strip", path], check=True)
    assert contents(path, ".first") == b"one" * 1000
    with open(path, "rb") as file:
        assert elf.image_checksum(file) == before
        assert elf.read_sections(file)[".first"].offset % 4096 == 0


@pytest.mark.parametrize("fraction", [0.001, 0.3, 0.9, 0.9999])
def test_a_truncated_file_is_malformed(shared_library, tmp_path, fraction):
    data = with_sections(shared_library, tmp_path / "a.so").read_bytes()
    with pytest.raises(elf.MalformedElfError):
        elf.read_sections(io.BytesIO(data[: int(len(data) * fraction)]))


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"MZ" + bytes(200), bytes(4096)])
def test_other_files_are_malformed(data):
    with pytest.raises(elf.MalformedElfError):
        elf.read_sections(io.BytesIO(data))


def test_no_corrupt_byte_of_the_tables_escapes_as_another_exception(shared_library, tmp_path):
    data = bytearray(with_sections(shared_library, tmp_path / "a.so").read_bytes())
    table = int.from_bytes(data[40:48], "little")
    for position in [*range(64), *range(table, len(data), 7)]:
        corrupt = bytearray(data)
        corrupt[position] ^= 0xFF
        try:
            elf.read_sections(io.BytesIO(corrupt))
            elf.image_checksum(io.BytesIO(corrupt))
        except elf.MalformedElfError:
            pass
