from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm.support import cc, tar

from compiler.errors import ExportError
from compiler.runtime import elf, graph_executor, load_module


def run(library, network, seed=1) -> None:
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    inputs = network.inputs(seed)
    module.run(**inputs)
    for index, expected in enumerate(network.reference(**inputs)):
        np.testing.assert_allclose(module.get_output(index).numpy(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("suffix", [".so", ".tar"])
def test_an_exported_library_runs_when_loaded(network, tmp_path, suffix):
    path = tmp_path / f"net{suffix}"
    network.library.export_library(path)
    loaded = load_module(path)
    run(loaded, network)
    assert loaded.metadata == network.library.metadata
    size = path.stat().st_size
    assert loaded.report == {**network.library.report, "library_bytes": size}
    assert os.listdir(tmp_path) == [path.name]


def test_weights_are_one_page_aligned_section(network, tmp_path):
    path = tmp_path / "net.so"
    network.library.export_library(str(path))
    with open(path, "rb") as file:
        section = elf.read_sections(file)[".baton.weights"]
        file.seek(section.offset)
        data = file.read(section.size)
    assert section.offset % 4096 == 0
    assert data == network.w.tobytes() + network.v.tobytes()


def test_an_archive_holds_objects_one_of_them_with_weights_and_metadata(network, tmp_path):
    network.library.export_library(tmp_path / "net.tar")
    with tarfile.open(tmp_path / "net.tar", "r:") as archive:
        assert all(name.endswith(".o") for name in archive.getnames())
        described = archive.extractfile("baton.o")
        weights = elf.read_sections(described)[".baton.weights"]
        described.seek(weights.offset)
        assert described.read(weights.size) == network.w.tobytes() + network.v.tobytes()


def test_what_tvm_links_from_an_archive_holds_weights_and_metadata(network, tmp_path):
    network.library.export_library(tmp_path / "net.tar")
    tvm.runtime.load_module(str(tmp_path / "net.tar"))
    with open(tmp_path / "net.tar.so", "rb") as file:
        sections = elf.read_sections(file)
    assert sections[".baton.weights"].offset % 64 == 0
    assert {".baton.weights", ".baton.metadata"} <= set(sections)


def test_an_archive_of_an_older_baton_loads(network, tmp_path):
    network.library.export_library(tmp_path / "net.tar")
    with (
        tarfile.open(tmp_path / "net.tar", "r:") as archive,
        tarfile.open(tmp_path / "old.tar", "w", format=tarfile.GNU_FORMAT) as old,
    ):
        for info in archive.getmembers()[:-1]:
            old.addfile(info, archive.extractfile(info))
        described = archive.extractfile("baton.o")
        sections = elf.read_sections(described)
        for name in (".baton.weights", ".baton.metadata"):
            info = tarfile.TarInfo(name)
            described.seek(sections[name].offset)
            info.size = sections[name].size
            old.addfile(info, described)
    run(load_module(tmp_path / "old.tar"), network)


def test_tvm_itself_can_load_the_code_of_a_library(network, tmp_path):
    network.library.export_library(tmp_path / "net.so")
    assert tvm.runtime.load_module(str(tmp_path / "net.so")).implements_function(
        "vm_load_executable"
    )


def test_an_existing_file_is_replaced(network, build_network, tmp_path):
    path = tmp_path / "net.so"
    path.write_text("old")
    network.library.export_library(path)
    run(load_module(path), network)


def test_a_library_exported_over_a_loaded_one_is_the_new_one_when_loaded(build, tmp_path):
    from tvm import relax

    path = tmp_path / "net.so"
    results = []
    for factor in (2.0, 3.0):
        library = build(
            [("x", (4,), "float32")],
            lambda b, x, factor=factor: b.emit(relax.op.multiply(x, relax.const(factor))),
        )
        library.export_library(path)
        module = graph_executor.GraphModule(load_module(path)["default"](tvm.cpu()))
        module.run(x=np.ones(4))
        results.append(module.get_output(0).numpy()[0])
    assert results == [2.0, 3.0]


def test_a_library_without_weights_gets_them_at_run_time(network, tmp_path):
    network.library.remove_params().export_library(tmp_path / "net.so")
    assert (tmp_path / "net.so").stat().st_size < 200_000
    loaded = load_module(tmp_path / "net.so")
    assert loaded.get_params() == {}
    module = graph_executor.GraphModule(loaded["default"](tvm.cpu()))
    module.set_input(**network.library.get_params())
    inputs = network.inputs(1)
    module.run(**inputs)
    expected = network.reference(**inputs)[0]
    np.testing.assert_allclose(module.get_output(0).numpy(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("suffix", [".so", ".tar"])
def test_a_loaded_library_is_exported_again_as_a_copy(network, tmp_path, suffix):
    network.library.export_library(tmp_path / f"a{suffix}")
    load_module(tmp_path / f"a{suffix}").export_library(tmp_path / f"b{suffix}")
    run(load_module(tmp_path / f"b{suffix}"), network)


def test_a_loaded_library_cannot_change_its_kind(network, tmp_path):
    network.library.export_library(tmp_path / "a.so")
    loaded = load_module(tmp_path / "a.so")
    with pytest.raises(ExportError, match=r"a\.so.*\.so again"):
        loaded.export_library(tmp_path / "b.tar")
    with pytest.raises(ExportError, match="object files are gone"):
        loaded.remove_params().export_library(tmp_path / "b.so")
    assert os.listdir(tmp_path) == ["a.so"]


def test_fcompile_links_the_library(network, tmp_path):
    linked = []

    def link(output, objects, options=None):
        linked.extend(objects)
        cc.create_shared(output, objects, options)

    network.library.export_library(tmp_path / "net.so", fcompile=link)
    assert linked
    run(load_module(tmp_path / "net.so"), network)


def test_fcompile_has_no_meaning_for_an_archive(network, tmp_path):
    with pytest.raises(ExportError, match="fcompile"):
        network.library.export_library(tmp_path / "net.tar", fcompile=cc.create_shared)
    network.library.export_library(tmp_path / "net.tar", fcompile=tar.tar)
    assert os.listdir(tmp_path) == ["net.tar"]


@pytest.mark.parametrize("name", ["net.dll", "net", "net.so.gz", "so"])
def test_an_unknown_suffix_is_named(network, tmp_path, name):
    with pytest.raises(ExportError, match=r"\.so, \.tar"):
        network.library.export_library(tmp_path / name)
    assert os.listdir(tmp_path) == []


def test_a_folder_that_does_not_exist_is_named(network, tmp_path):
    with pytest.raises(ExportError, match=r"missing' is not a folder"):
        network.library.export_library(tmp_path / "missing" / "net.so")
    (tmp_path / "file").write_text("")
    with pytest.raises(ExportError, match=r"file' is not a folder"):
        network.library.export_library(tmp_path / "file" / "net.so")
    with pytest.raises(ExportError, match="nul"):
        network.library.export_library(str(tmp_path) + "/nul\0byte/net.so")


def test_a_destination_that_is_a_folder_is_an_error(network, tmp_path):
    (tmp_path / "net.so").mkdir()
    with pytest.raises(ExportError, match=r"net\.so.*[Dd]irectory"):
        network.library.export_library(tmp_path / "net.so")
    assert os.listdir(tmp_path) == ["net.so"]


def test_a_folder_that_cannot_be_written_is_an_error(network, tmp_path):
    folder = tmp_path / "readonly"
    folder.mkdir(mode=0o555)
    if os.access(folder, os.W_OK):
        folder = Path("/proc")  # root may write anywhere else
        if not folder.is_dir():
            pytest.skip("needs a folder that the user can't write")
    before = set(os.listdir(tmp_path))
    with pytest.raises(ExportError, match=r"can't write .*net\.so"):
        network.library.export_library(folder / "net.so")
    assert set(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("suffix", [".so", ".tar"])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(network, tmp_path, suffix, monkeypatch):
    path = tmp_path / f"net{suffix}"
    path.write_text("old")

    def no_space(stream, *_):
        stream.write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("compiler.runtime.export.write_weights", no_space)
    with pytest.raises(ExportError, match=r"net\.(so|tar).*No space left"):
        network.library.export_library(path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == [path.name]


LIMITED_EXPORT = """
import resource, sys
from compiler.errors import ExportError
from compiler.runtime import load_module
library = load_module(sys.argv[1])
limit = 4096
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    library.export_library(sys.argv[2])
except ExportError as error:
    print(error)
"""


def test_a_limit_on_the_size_of_files_is_an_error_too(network, tmp_path):
    network.library.export_library(tmp_path / "a.so")
    done = subprocess.run(
        [sys.executable, "-c", LIMITED_EXPORT, tmp_path / "a.so", tmp_path / "b.so"],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    assert "File too large" in done.stdout
    assert os.listdir(tmp_path) == ["a.so"]


def test_a_linker_that_fails_is_reported_and_leaves_nothing(network, tmp_path):
    def fail(output, objects):
        Path(output).write_text("half")
        raise RuntimeError("undefined symbol: foo")

    with pytest.raises(ExportError, match=r"net\.so.*undefined symbol: foo"):
        network.library.export_library(tmp_path / "net.so", fcompile=fail)
    assert os.listdir(tmp_path) == []


def test_a_linker_that_writes_something_else_is_reported(network, tmp_path):
    with pytest.raises(ExportError, match="ELF"):
        network.library.export_library(
            tmp_path / "net.so", fcompile=lambda output, objects: Path(output).write_text("no")
        )
    assert os.listdir(tmp_path) == []


def test_a_missing_compiler_is_reported(network, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", str(tmp_path / "no-compiler"))
    with pytest.raises(ExportError, match="C\\+\\+ compiler"):
        network.library.export_library(tmp_path / "net.so")
    assert os.listdir(tmp_path) == []


def test_too_little_room_for_temporary_files_is_an_error(network, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=1 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(ExportError, match=r"needs 17 MB .* has 1\.0 MB: make room.*TMPDIR"):
        network.library.export_library(tmp_path / "net.so", fcompile=cc.create_shared)
    assert os.listdir(tmp_path) == []


def test_an_archive_needs_no_compiler(network, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", str(tmp_path / "no-compiler"))
    network.library.export_library(tmp_path / "net.tar")
    assert os.listdir(tmp_path) == ["net.tar"]


def test_a_stripped_library_still_loads(network, tmp_path):
    if shutil.which("strip") is None:
        pytest.skip("needs strip")
    path = tmp_path / "net.so"
    network.library.export_library(path)
    subprocess.run(["strip", path], check=True)
    run(load_module(path), network)


@pytest.mark.parametrize("suffix", [".so", ".tar"])
def test_a_loaded_library_is_exported_as_it_was_loaded(network, tmp_path, suffix):
    first, second = tmp_path / f"first{suffix}", tmp_path / f"second{suffix}"
    network.library.export_library(first)
    content = first.read_bytes()
    loaded = load_module(first)
    first.unlink()
    loaded.export_library(second)
    assert second.read_bytes() == content
    first.write_bytes(b"another file at the same path")
    loaded.export_library(second)
    assert second.read_bytes() == content
    loaded.export_library(first)
    assert first.read_bytes() == content


def test_a_loaded_library_that_was_written_into_is_not_exported(network, tmp_path):
    path = tmp_path / "a.tar"
    network.library.export_library(path)
    loaded = load_module(path)
    with open(path, "ab") as file:
        file.write(b"more")
    with pytest.raises(ExportError, match="written into since it was loaded"):
        loaded.export_library(tmp_path / "b.tar")
    assert not (tmp_path / "b.tar").exists()
