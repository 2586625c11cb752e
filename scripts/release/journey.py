#!/usr/bin/env python3
"""What a user does with the wheels, from their installation on, in a folder outside a checkout.

    scripts/release/journey.py dist            # bundled networks, compared with onnxruntime
    scripts/release/journey.py --short dist    # a small network: for CI

`dist` is what `make wheel` leaves. Prints a line per step: ok, skipped with what is missing on this
machine, or FAILED with what the command said, and then ends with 1. The programs in
scripts/release/journey_programs/ are the user's.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = HERE / "journey_programs"
ROOT = HERE.parents[1]
SERVER = ROOT / "examples" / "serve"
IN_A_CHECKOUT = (
    *("add_a_*.md", "add_an_operator.md", "*_measured.md", "low_precision_kernels.md"),
    *("fuzzing.md", "releases.md"),
)
"""Pages for who changes Baton or repeats measurements; all others with code run from the wheel."""
ONLY_PARSED = (
    *(
        "baton diff baton baton",
        "baton bench",
        "baton cache clear",
        "baton run old_script.py",
        "baton runtime build",
    ),
    "baton compile model.onnx -o model-arm.so",
    "baton tune model.onnx --tuner auto_scheduler --log tuned.json --target",
    "baton compile model.onnx --backend onnxruntime,openvino --placement fastest",
)
"""Commands of these pages that take minutes; other steps of the journey run them."""
ARM = {"triple": "aarch64-linux-gnu", "cpu": "cortex-a72", "wheels": "manylinux_2_28_aarch64"}
TOLERANCE = 1e-4
"""Largest error relative to the largest magnitude of the results that counts as right."""


LEFT_OUT = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "TVM_LIBRARY_PATH", "TVM_USE_RUNTIME_LIB")
INSTALLERS = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "wheel")
"""What a new environment has by itself."""


def has_page(page: pathlib.Path) -> bool:
    """Whether the journey runs a page: it has code, and needs no checkout."""
    if any(page.match(pattern) for pattern in IN_A_CHECKOUT):
        return False
    return re.search(r"^```(python|sh)$", page.read_text(encoding="utf-8"), re.M) is not None


class CommandError(Exception):
    """A command failed; the message has its last words."""


def run(
    command: list[str], folder: pathlib.Path, seconds: float, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, without what points Python at the checkout.

    Raises CommandError: it failed, or took longer than `seconds`.
    """
    kept = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**kept, **variables},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise CommandError(f"{' '.join(command)}: not done after {seconds:.0f} s") from error
    if done.returncode:
        said = (done.stdout + done.stderr).strip()[-3000:]
        raise CommandError(f"{' '.join(command)}: status {done.returncode}\n{said}")
    return done


class Environment:
    """A new environment in a folder, with the requirements installed.

    Requirements are names or paths of wheels, as for pip; `cache` is for Baton's caches.
    """

    def __init__(self, folder: pathlib.Path, *requirements: str, cache: pathlib.Path) -> None:
        self.folder = folder
        self._cache = cache
        run([sys.executable, "-m", "venv", str(folder)], folder.parent, 600)
        pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        self.python(*pip, *requirements)

    def python(
        self, *arguments: str, seconds: float = 600, folder: pathlib.Path | None = None
    ) -> str:
        """What a program of the environment's Python prints; raises CommandError."""
        return self._run("python", *arguments, seconds=seconds, folder=folder)

    def baton(self, *arguments: str, seconds: float = 600, **variables: str) -> str:
        """What the environment's `baton` prints; raises CommandError."""
        return self._run("baton", "--quiet", *arguments, seconds=seconds, variables=variables)

    def baton_json(self, *arguments: str, seconds: float = 600) -> Any:
        """What it prints with `--json`."""
        return json.loads(self.baton(*arguments, "--json", seconds=seconds))

    def _run(
        self,
        program: str,
        *arguments: str,
        seconds: float,
        folder: pathlib.Path | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> str:
        command = [str(self.folder / "bin" / program), *arguments]
        given = {"XDG_CACHE_HOME": str(self._cache), **(variables or {})}
        return run(command, folder or self.folder.parent, seconds, **given).stdout

    def megabytes(self) -> float:
        """What the packages take on disk, without pip's own."""
        (packages,) = self.folder.glob("lib/python*/site-packages")
        files = (
            path
            for entry in packages.iterdir()
            if entry.name.partition("-")[0] not in INSTALLERS
            for path in (entry.rglob("*") if entry.is_dir() else [entry])
            if path.suffix != ".pyc"
        )
        return sum(path.lstat().st_size for path in files if path.is_file()) / 1e6


class Missing(Exception):
    """This machine lacks what a step needs; the message says what."""


class Wrong(Exception):
    """A step ran, and its result is not right."""


class Journey:
    """The steps, in their order; each returns what the transcript says of it.

    `folder`, outside of any checkout, gets environments, models and libraries; `dist` has the
    wheels; `short` takes a small network and few measurements.
    """

    def __init__(self, folder: pathlib.Path, dist: pathlib.Path, short: bool) -> None:
        self.folder, self.short = folder, short
        self.wheel, self.runtime_wheel = _wheel(dist, "baton_tvm"), _wheel(dist, "baton_runtime")
        self.model, self.cases = folder / "model.onnx", folder / "cases.npz"
        self.library, self.log = folder / "model.so", folder / "tuned.log"
        shutil.copytree(PROGRAMS, folder / "programs")
        shutil.copytree(SERVER, folder / "serve")

    def steps(self) -> list[Callable[[], str]]:
        """All of them."""
        return [
            self.install, self.pages, self.compile, self.run, self.bench, self.profile,
            self.partition, self.tune, self.replay, self.deploy, self.fork, self.requests,
            self.cpp, self.aarch64,
        ]  # fmt: skip

    def install(self) -> str:
        """The wheel, what tuning needs, and onnxruntime, the peer, in a fresh environment."""
        cache = self.folder / "cache"
        wanted = ("onnxruntime", f"{self.wheel}[tune]")
        self.home = Environment(self.folder / "environment", *wanted, cache=cache)
        version = self.home.baton("--version").strip()
        expected = self.wheel.name.split("-")[1]
        _require(version.split(",")[0] == f"baton {expected}", f"{version}, not {expected}")
        if self.short:
            self.home.python(self.program("small_model"), str(self.model))
        else:
            self.home.baton("models", "squeezenet1_1", "-o", str(self.model))
        self.home.python(self.program("reference"), str(self.model), str(self.cases))
        return f"{version}; {self.home.megabytes():.0f} MB"

    def pages(self) -> str:
        """Each page that a user copies from, in a fresh process and an empty folder."""
        every = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
        pages = [page for page in every if has_page(page)]
        parsed = [word for start in ONLY_PARSED for word in ("--parse", start)]
        for page in pages:
            folder = self.folder / "pages" / page.relative_to(ROOT).with_suffix("")
            folder.mkdir(parents=True)
            run_page = str(HERE / "run_page.py")
            self.home.python(run_page, str(page), *parsed, folder=folder, seconds=1200)
        return f"{len(pages)} pages"

    def compile(self) -> str:
        """`baton compile` to a library."""
        found = self.home.baton_json("compile", str(self.model), "-o", str(self.library))
        seconds = sum(found["seconds"].values())
        return f"{found['library_bytes'] / 1e6:.1f} MB in {seconds:.1f} s"

    def run(self) -> str:
        """`baton run` of the library."""
        found = self.home.baton_json("run", str(self.library), "--random", "--repeat", "20")
        return f"{found['median_milliseconds']:.3f} ms"

    def bench(self) -> str:
        """`baton bench` against onnxruntime."""
        effort = ("1", "0.1") if self.short else ("7", "1")
        found = self.home.baton_json(
            "bench", str(self.model), "--peers", "onnxruntime",
            "--rounds", effort[0], "--seconds", effort[1],
        )  # fmt: skip
        engines = found["models"][0]["engines"]
        times = ", ".join(f"{name} {each['median_ms']:.3f} ms" for name, each in engines.items())
        _require(engines["baton"]["error"] < TOLERANCE, f"error {engines['baton']['error']}")
        return f"{times}, one thread"

    def profile(self) -> str:
        """`baton profile` of the library."""
        found = self.home.baton_json("profile", str(self.library))
        longest = max(found["kernels"], key=lambda kernel: kernel["milliseconds"])
        return f"longest {longest['name']} {longest['milliseconds']:.3f} ms"

    def partition(self) -> str:
        """`baton partition` with a plugin of the user's."""
        plugin = ["--backend", "mine", "--plugin", self.program("plugin")]
        found = self.home.baton_json("partition", str(self.model), *plugin)
        taken = [subgraph["operators"] for subgraph in found["subgraphs"]]
        _require(bool(taken), "the plugin took nothing")
        return f"{len(taken)} subgraphs of {sum(map(len, taken))} operators"

    def tune(self) -> str:
        """`baton tune`, five trials of one operator's templates."""
        operator = "nn.dense" if self.short else "nn.conv2d"
        found = self.home.baton_json(
            "tune", str(self.model), "--log", str(self.log), "--trials", "5", "--limit", "1",
            "--op", operator, "--algorithm", "random", "--rounds", "1",
        )  # fmt: skip
        records = len(self.log.read_text(encoding="utf-8").splitlines())
        _require(records >= 5, f"{records} records")
        return f"{records} records, {len(found['operators'])} operator"

    def replay(self) -> str:
        """`baton replay` of the records."""
        found = self.home.baton_json(
            "replay", str(self.model), "--log", str(self.log), "--rounds", "1"
        )
        _require(bool(found["recorded"]), "no kernel has a record")
        return f"{len(found['recorded'])} kernels with a record"

    def deploy(self) -> str:
        """The library by three interfaces, where only the wheel of the runtime is installed."""
        self.deployment = Environment(
            self.folder / "deployment", str(self.runtime_wheel), cache=self.folder / "cache"
        )
        error = self.deployed()
        return f"{self.deployment.megabytes():.0f} MB, error {error:.0e}"

    def fork(self) -> str:
        """The same in children of a process that has run kernels."""
        return f"error {self.deployed('fork'):.0e}"

    def deployed(self, *how: str) -> float:
        """The error of the user's program."""
        error = float(
            self.deployment.python(
                self.program("deployed"), str(self.library), str(self.cases), *how
            )
        )
        _require(error < TOLERANCE, f"error {error}")
        return error

    def requests(self) -> str:
        """10,000 requests of four threads to one session, in turn with onnxruntime."""
        rates: dict[str, list[float]] = {"baton": [], "onnxruntime": []}
        for _ in range(1 if self.short else 3):
            for engine, where, path in (
                ("baton", self.deployment, self.library),
                ("onnxruntime", self.home, self.model),
            ):
                found = json.loads(
                    where.python(self.program("many_requests"), engine, str(path), str(self.cases))
                )
                _require(not found["wrong"], f"{engine}: {found['wrong']} are wrong")
                rates[engine].append(found["per_second"])
        shown = ", ".join(f"{engine} {max(each):.0f}/s" for engine, each in rates.items())
        return f"{found['requests']} requests of 4 threads, 0 wrong; {shown}"

    def cpp(self) -> str:
        """examples/serve over libbaton_runtime."""
        _need("g++", "g++")
        _need("cmake", "cmake")
        prefix, build = self.folder / "prefix", self.folder / "serve-build"
        self.home.baton("runtime", "build", "-o", str(prefix))
        found = f"-DCMAKE_PREFIX_PATH={prefix}"
        run(["cmake", "-S", str(self.folder / "serve"), "-B", str(build), found], self.folder, 120)
        run(["cmake", "--build", str(build)], self.folder, 300)
        return self.served([str(build / "serve"), str(self.library)])

    def aarch64(self) -> str:
        """The same, compiled for another processor and run in an emulator."""
        compiler = f"{ARM['triple']}-g++"
        _need(compiler, f"g++-{ARM['triple']}")
        _need("qemu-aarch64", "qemu-user")
        wheels = self.folder / "wheels"
        packages = [f"{name}=={self.version(name)}" for name in ("apache-tvm", "apache-tvm-ffi")]
        self.home.python(
            "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
            "--only-binary", ":all:", "--platform", ARM["wheels"], "--dest", str(wheels), *packages,
        )  # fmt: skip
        prefix, library = self.folder / "aarch64", self.folder / "aarch64.so"
        target = f"llvm -mtriple={ARM['triple']} -mcpu={ARM['cpu']}"
        given = [word for wheel in sorted(wheels.iterdir()) for word in ("--wheel", str(wheel))]
        self.home.baton("runtime", "build", "-o", str(prefix), *given, CXX=compiler)
        self.home.baton(
            "compile", str(self.model), "--target", target, "-o", str(library), CXX=compiler
        )
        server = self.folder / "serve-aarch64"
        run(
            [
                compiler, "-std=c++17", "-O2", str(self.folder / "serve" / "serve.cc"),
                "-o", str(server), f"-I{prefix}/include", f"-L{prefix}/lib", "-lbaton_runtime",
                f"-Wl,-rpath,{prefix}/lib", f"-Wl,-rpath-link,{prefix}/lib", "-pthread",
            ],
            self.folder,
            120,
        )  # fmt: skip
        (tvm,) = wheels.glob("apache_tvm-*")
        self.home.baton("runtime", "wheel", "-o", str(self.folder), "--tvm", str(tvm))
        made = next(self.folder.glob("baton_runtime-*aarch64.whl"))
        root = f"/usr/{ARM['triple']}"
        asked = self.served(["qemu-aarch64", "-L", root, str(server), str(library)])
        return f"{asked}, in qemu; wheel of {made.stat().st_size / 1e6:.1f} MB"

    def served(self, command: list[str]) -> str:
        """What a client of a server gets; the server listens at a free port."""
        with subprocess.Popen([*command, "0"], stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                line = server.stdout.readline()
                _require(bool(line), "the server ended")
                port = line.split()[-1]
                error = float(self.home.python(self.program("ask"), port, str(self.cases)))
            finally:
                server.kill()
        _require(error < TOLERANCE, f"error {error}")
        return f"a server in C++ answers, error {error:.0e}"

    def program(self, name: str) -> str:
        """The path of one of the user's programs."""
        return str(self.folder / "programs" / f"{name}.py")

    def version(self, package: str) -> str:
        """Of what is installed beside Baton."""
        told = f"import importlib.metadata as m; print(m.version({package!r}))"
        return self.home.python("-c", told).strip()


def _wheel(dist: pathlib.Path, name: str) -> pathlib.Path:
    found = sorted(dist.glob(f"{name}-*.whl"))
    if len(found) != 1:
        raise SystemExit(f"{dist} has {len(found)} wheels {name}-*.whl instead of one: make wheel")
    return found[0].resolve()


def _need(program: str, package: str) -> None:
    if shutil.which(program) is None:
        raise Missing(f"{program} is not on PATH (Debian: apt-get install {package})")


def _require(right: bool, otherwise: str) -> None:
    if not right:
        raise Wrong(otherwise)


@contextlib.contextmanager
def _folder(kept: str | None) -> Iterator[pathlib.Path]:
    """An empty folder outside of the checkout; a named one is kept."""
    if kept is not None:
        path = pathlib.Path(kept).resolve()
        path.mkdir(parents=True)
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="baton-journey-") as name:
        yield pathlib.Path(name).resolve()


def main(arguments: Sequence[str] | None = None) -> int:
    """Go the way, printing the transcript."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("dist", type=pathlib.Path, help="folder with the wheels")
    parser.add_argument("--short", action="store_true", help="a small network, few measurements")
    parser.add_argument("--keep", metavar="FOLDER", help="a new folder for everything made")
    options = parser.parse_args(arguments)
    start = time.monotonic()
    with _folder(options.keep) as folder:
        journey = Journey(folder, options.dist, options.short)
        for step in journey.steps():
            before = time.monotonic()
            try:
                state, told = "ok", step()
            except Missing as error:
                state, told = "skipped", str(error)
            except (CommandError, Wrong, KeyError, ValueError, OSError) as error:
                state, told = "FAILED", f"{type(error).__name__}: {error}"
            seconds = time.monotonic() - before
            print(f"{state:8} {step.__name__:10} {seconds:6.1f} s  {told}", flush=True)
            if state == "FAILED":
                return 1
    print(f"done in {time.monotonic() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
