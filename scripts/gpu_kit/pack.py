"""Packs the kit: `build/gpu-kit`, which a machine with a GPU, and without network and TVM, runs.

    python -m scripts.gpu_kit.pack build/gpu-kit build/gpu-kit-parts

`build/gpu-kit-parts` has what `scripts.gpu_kit.prebuild` built. `base` is an archive of Baton,
TVM's Python and runtime, and the cases; `compiler` is TVM's compiler, which one stage needs. Both
are cut into pieces, for machines that files get to in turns.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import lzma
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from importlib import metadata
from typing import Any

from scripts.gpu_kit import trim

ROOT = pathlib.Path(__file__).resolve().parents[2]
ON_DEVICE = pathlib.Path(__file__).resolve().parent / "on_device"
PIECE = 15_000_000
"""Bytes of a piece at most."""
PYTHONS = ("3.11", "3.12", "3.13")
"""Versions that the kit has binary packages for."""
LIMIT = 60_000_000
SUFFIXES = {".py", ".pyi", ".so", ".txt", ".h", ".hpp", ".cc", ".onnx", ".json", ".typed", ".rly"}
LEFT_OUT = {"__pycache__", "include", "3rdparty", "lib64", "tests", "testing", "src", "share"}
_PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_24", "manylinux_2_17")


def base_files(parts: pathlib.Path, wheels: pathlib.Path) -> Iterator[tuple[str, pathlib.Path]]:
    """Names in the base archive and files, those that are alike next to each other."""
    site = trim.library().parents[2]
    found: dict[str, pathlib.Path] = {}
    for package in ("compiler", "schedules", "tuning_logs", "scripts/gpu_kit"):
        found.update(_below(ROOT, package))
    found.update(_below(ROOT / "compiler" / "support", "baton_tvm"))
    found["scripts/__init__.py"] = ROOT / "scripts" / "__init__.py"
    for package in ("tvm", "tvm_ffi"):
        found.update(_below(site, package))
    for name in ("tvm/lib/libtvm_compiler.so", "tvm_ffi/lib/libtvm_ffi_testing.so"):
        found.pop(name, None)
    for folder in sorted(wheels.iterdir()):
        found.update({name: path for name, path in _below(folder, "") if name not in found})
    for name in ("apache-tvm", "apache-tvm-ffi", "baton-tvm"):
        version = metadata.version(name)
        written = parts.parent / f"{name}.METADATA"
        written.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        found[f"{name.replace('-', '_')}-{version}.dist-info/METADATA"] = written
    cases = [path for path in sorted(parts.iterdir()) if not path.name.startswith("compiler")]
    found.update({f"cases/{path.name}": path for path in cases})
    yield from sorted(found.items(), key=lambda each: (_kind(each[0]), each[0]))


def _kind(name: str) -> tuple[int, str]:
    path = pathlib.PurePath(name)
    return name.startswith("cases/"), path.suffix


def _below(root: pathlib.Path, package: str) -> Iterator[tuple[str, pathlib.Path]]:
    for path in sorted((root / package).rglob("*")):
        parts = path.relative_to(root).parts
        if path.suffix in SUFFIXES and path.is_file() and not LEFT_OUT & set(parts[1:]):
            yield "/".join(parts), path


def fetch_wheels(folder: pathlib.Path) -> pathlib.Path:
    """Binary packages of TVM's for each version of Python, unpacked into a folder each."""
    wanted = [f"{name}=={metadata.version(name)}" for name in ("apache-tvm-ffi", "ml_dtypes")]
    wanted.append("typing_extensions")
    for python in PYTHONS:
        target = folder / python
        if target.is_dir():
            continue
        with tempfile.TemporaryDirectory(dir=folder.parent) as draft:
            platforms = [f"--platform={name}_x86_64" for name in _PLATFORMS]
            subprocess.run(
                [
                    *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"),
                    *("--disable-pip-version-check", "--only-binary=:all:", "--no-compile"),
                    *("--python-version", python, "--target", draft),
                    *(*platforms, *wanted),
                ],
                check=True,
            )
            shutil.copytree(draft, target)
    return folder


def archive(files: Iterator[tuple[str, pathlib.Path]]) -> bytes:
    """A tar of files without owners and times, compressed as small as xz can."""
    filters: list[dict[str, Any]] = [
        {"id": lzma.FILTER_X86},
        {
            "id": lzma.FILTER_LZMA2,
            "preset": 9 | lzma.PRESET_EXTREME,
            "dict_size": 1 << 27,
            "lc": 4,
            "lp": 0,
            "pb": 0,
        },
    ]
    packed = io.BytesIO()
    with (
        lzma.open(packed, "wb", format=lzma.FORMAT_XZ, filters=filters) as stream,
        tarfile.open(fileobj=stream, mode="w|", format=tarfile.GNU_FORMAT) as tar,
    ):
        for name, path in files:
            info = tarfile.TarInfo(name)
            info.size, info.mode = path.stat().st_size, 0o755 if path.suffix == ".so" else 0o644
            with path.open("rb") as file:
                tar.addfile(info, file)
    return packed.getvalue()


def compiler_archive(parts: pathlib.Path) -> bytes:
    """TVM's compiler without what builds for GPUs do not run, compressed; it is kept."""
    kept = parts / f"compiler-{metadata.version('apache-tvm')}.xz"
    if not kept.exists():
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            touched = trim.touched_pages(parts)
            file.write(trim.trimmed(trim.library().read_bytes(), touched))
            file.flush()
            library = pathlib.Path(file.name)
            packed = archive(iter([("tvm/lib/libtvm_compiler.so", library)]))
        draft = kept.with_suffix(".draft")
        draft.write_bytes(packed)
        os.replace(draft, kept)
    return kept.read_bytes()


def cut(kit: pathlib.Path, name: str, content: bytes) -> list[str]:
    """Write pieces; their names."""
    names = []
    for at, start in enumerate(range(0, len(content), PIECE)):
        names.append(f"{name}.{at:02d}")
        (kit / names[-1]).write_bytes(content[start : start + PIECE])
    return names


def step(title: str, run: str, **more: Any) -> dict[str, Any]:
    """A step for `on_device.worker`."""
    arguments = more.pop("arguments", {})
    return {"step": title, "run": run, "arguments": arguments, **more}


def stages(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The stages for `on_device.runner`, the most telling first; each has its own limits."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for case in cases:
        kinds.setdefault(case["kind"], []).append(case)

    def each(kind: str, run: str, *keys: str, **more: Any) -> list[dict[str, Any]]:
        return [
            step(case["title"], run, arguments={**{key: case[key] for key in keys}, **more})
            for case in kinds.get(kind, [])
        ]

    def stage(
        letter: str, title: str, steps: list[Any], seconds: int, **more: Any
    ) -> dict[str, Any]:
        limits = {"seconds": 115, "step_seconds": seconds, "start_seconds": 40}
        return {"stage": letter, "title": title, **limits, "steps": steps, **more}

    plain = [case for case in kinds["network"] if case.get("backend", "").startswith("gpu_kit")]
    plain += [case for case in kinds["network"] if "backend" not in case]
    kinds["library"] = [case for case in kinds["network"] if case not in plain]
    kinds["network"] = plain
    families = each("family", "cases:family", "case")
    libraries = each("library", "cases:network", "case")
    networks = each("network", "cases:network", "case")
    again = step("exported again", "cases:exported", arguments={"case": plain[-1]["case"]})
    checker = ("compute-sanitizer", "--tool")
    slow = {"start_seconds": 60, "complaints": "========= (Error|Invalid|Warning|Race|Program hit)"}
    return [
        stage("a", "every kernel family, and NVIDIA's libraries", families + libraries, 20),
        stage("b", "the six models", each("model", "cases:model", "case", "dtype"), 30),
        stage("c1", "memcheck", families, 30, under=[*checker, "memcheck"], **slow),
        stage("c2", "racecheck", families, 30, under=[*checker, "racecheck"], **slow),
        stage("d1", "layers against eager", each("timed", "timing:layer", "case", "dtype"), 25),
        stage(
            "d2", "models against torch.compile", each("model", "timing:model", "case", "dtype"), 80
        ),
        stage("e", "graphs, CPU and GPU, export, allocations", [*networks, again], 20),
        stage("f", "builds on this machine", _builds(cases), 60, compiler=True),
        stage(
            "d3",
            "layers against torch.compile",
            each("timed", "timing:layer", "case", "dtype", compiled=True),
            60,
        ),
    ]


def _builds(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    families = [case for case in cases if case["kind"] == "family" and "," not in case["title"]]
    return [
        step("product, half", "building:product", arguments={"dtype": "float16"}),
        step("small network", "building:network"),
        *(
            step(case["title"], "building:family", arguments={"case": case["case"]})
            for case in families
        ),
        step("resnet18_v1 from ONNX", "building:onnx_model", arguments={"name": "resnet18_v1"}),
        step("minilm from ONNX", "building:onnx_model", arguments={"name": "minilm"}),
    ]


def pack(kit: pathlib.Path, parts: pathlib.Path, compiler: bool = True) -> int:
    """Write the kit; its bytes."""
    if kit.exists():
        shutil.rmtree(kit)
    kit.mkdir(parents=True)
    wheels = parts.parent / "gpu-kit-wheels"
    wheels.mkdir(exist_ok=True)
    pieces = {"base": cut(kit, "base.tar.xz", archive(base_files(parts, fetch_wheels(wheels))))}
    pieces["compiler"] = cut(kit, "compiler.tar.xz", compiler_archive(parts)) if compiler else ["-"]
    (kit / "pieces.json").write_text(json.dumps(pieces, indent=1))
    cases = json.loads((parts / "cases.json").read_text())
    (kit / "stages.json").write_text(json.dumps(stages(cases), indent=1))
    shutil.copy(ON_DEVICE / "runner.py", kit)
    shutil.copy(ON_DEVICE.parent / "run.sh", kit)
    sums = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(kit.iterdir())
    ]
    (kit / "SHA256SUMS").write_text("".join(sums))
    return sum(path.stat().st_size for path in kit.iterdir())


def main() -> int:
    """Pack, print the size, and fail if it is too large."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kit", type=pathlib.Path)
    parser.add_argument("parts", type=pathlib.Path)
    parser.add_argument("--without-compiler", action="store_true")
    options = parser.parse_args()
    size = pack(options.kit, options.parts, not options.without_compiler)
    for path in sorted(options.kit.iterdir()):
        print(f"{path.stat().st_size / 1e6:8.2f} MB  {path.name}")
    print(f"{size / 1e6:8.2f} MB  in all; the limit is {LIMIT / 1e6:.0f} MB")
    return 1 if size > LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
