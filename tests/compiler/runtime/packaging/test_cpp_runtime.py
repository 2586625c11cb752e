"""`libbaton_runtime` from the outside: installed, linked with C and C++ programs, and run."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import tvm

from compiler import relay
from compiler.errors import ExportError
from compiler.runtime.packaging.cpp_runtime import build_cpp_runtime
from compiler.support.cxx import cxx_command

ROOT = Path(__file__).resolve().parents[4]
WEIGHT = np.random.default_rng(0).standard_normal((4, 3)).astype("float32")

PROGRAM = r"""
#include <baton/runtime.hpp>
#include <cstdio>
#include <thread>

int main(int, char** argv) {
  try {
    const baton::Library library(argv[1]);
    for (const auto& info : library.inputs()) {
      std::printf("%s %s %zu\n", info.name.c_str(), info.dtype.c_str(), info.shape.size());
    }
    std::vector<std::thread> threads;
    std::vector<float> sums(4);
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        baton::Session session(library, 1);
        for (int run = 0; run < 50; ++run) {
          for (float& value : session.input<float>("x")) value = static_cast<float>(i);
          session.input<std::int64_t>(1)[0] = run;
          session.run();
        }
        for (float value : session.output<float>(0)) sums[i] += value;
        if (session.output<std::int64_t>(1)[0] != 50) std::puts("wrong");
      });
    }
    for (auto& thread : threads) thread.join();
    for (float sum : sums) std::printf("%.5f\n", sum);
    baton::Session session(library);
    try {
      session.input<double>("x");
    } catch (const baton::Error& error) {
      std::printf("%s\n", error.what());
    }
  } catch (const baton::Error& error) {
    std::printf("error: %s\n", error.what());
    return 1;
  }
}
"""

OPEN = r"""
#include <baton/runtime.hpp>
#include <cstdio>

int main(int, char** argv) {
  const baton::Library library(argv[1]);
  baton::Session session(library, 1);
  const auto attempt = [&](auto work) {
    try {
      work();
    } catch (const baton::Error& error) {
      std::printf("%s\n", error.what());
    }
  };
  attempt([&] { session.run(); });
  attempt([&] { session.set_input_shape(0, {9, 4}); });
  attempt([&] { session.set_input_shape(0, {2, 5}); });
  for (const std::int64_t rows : {3, 1, 8}) {
    session.set_input_shape(0, {rows, 4});
    session.set_input_shape(1, {rows, 1});
    for (float& value : session.input<float>(0)) value = static_cast<float>(rows);
    for (float& value : session.input<float>(1)) value = 0.5f;
    session.run();
    float sum = 0;
    for (float value : session.output<float>(0)) sum += value;
    std::printf("%d %.1f\n", static_cast<int>(session.output_shape(0)[0]), sum);
  }
  session.set_input_shape(1, {2, 1});
  attempt([&] { session.run(); });
}
"""

PLAIN_C = r"""
#include <baton/runtime.h>
#include <stdio.h>

int main(int argc, char** argv) {
  baton_library* library;
  baton_session* session;
  baton_tensor output;
  float values[64] __attribute__((aligned(64))) = {0};
  (void)argc;
  if (baton_library_load(argv[1], &library) || baton_session_create(library, 1, &session)) {
    puts(baton_last_error());
    return 1;
  }
  baton_library_destroy(library);  /* the session keeps what it needs */
  if (!baton_session_output(session, 0, &output)) return 2;
  puts(baton_last_error());
  if (!baton_session_bind_input(session, 0, values + 1)) return 3;
  puts(baton_last_error());
  values[0] = 1;
  if (baton_session_bind_input(session, 0, values) || baton_session_run(session) ||
      baton_session_output(session, 0, &output)) return 4;
  printf("%s %d %.5f\n", output.dtype, (int)output.shape[1], ((const float*)output.data)[0]);
  if (!baton_session_output(session, 9, &output) || baton_session_input(session, 9)) return 5;
  baton_session_destroy(session);
  return 0;
}
"""


REPLACED = r"""
#include <atomic>
#include <baton/runtime.hpp>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <thread>

std::string content(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

int main(int, char** argv) {
  const std::string live = argv[3], draft = live + ".tmp";
  const std::string versions[] = {content(argv[1]), content(argv[2])};
  std::atomic<bool> done{false};
  const auto replace = [&](int version) {
    std::ofstream(draft, std::ios::binary) << versions[version];
    std::rename(draft.c_str(), live.c_str());
  };
  replace(0);
  std::thread writer([&] {
    for (int i = 0; !done; ++i) replace(i % 2);
  });
  for (int i = 0; i < 100; ++i) {
    baton::Session session(baton::Library(live), 1);
    for (float& value : session.input<float>(0)) value = 10;
    session.run();
    std::printf("%.0f\n", static_cast<double>(session.output<float>(0)[0]));
  }
  done = true;
  writer.join();
}
"""


@pytest.fixture(scope="module")
def prefix(tmp_path_factory) -> Path:
    try:
        cxx_command()
    except RuntimeError:
        pytest.skip("there is no C++ compiler")
    root = tmp_path_factory.mktemp("prefix")
    build_cpp_runtime(root, ["-O0"])
    return root


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> Path:
    """`relu(x) @ WEIGHT` and an integer's successor, as a library."""
    x = relay.var("x", shape=(2, 4), dtype="float32")
    n = relay.var("n", shape=(1,), dtype="int64")
    weight = relay.var("weight", shape=(3, 4), dtype="float32")
    results = relay.Tuple([relay.nn.dense(relay.nn.relu(x), weight), n + relay.const(1, "int64")])
    mod = relay.Function([x, n, weight], results)
    built = relay.build(
        tvm.IRModule.from_expr(mod), target="llvm", params={"weight": WEIGHT.T.copy()}
    )
    path = tmp_path_factory.mktemp("exported") / "model.so"
    built.export_library(path)
    return path


def run(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)


def compiled(prefix: Path, tmp_path: Path, name: str, text: str, *flags: str) -> Path:
    source = tmp_path / name
    source.write_text(text)
    found = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "baton_runtime"],
        env={"PATH": "/usr/bin:/bin", "PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")},
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode:
        pytest.skip("there is no pkg-config")
    program = tmp_path / "program"
    driver = "gcc" if name.endswith(".c") else "g++"
    done = run(
        driver, "-Wall", "-Wextra", "-Werror", *flags, source, "-o", program,
        *found.stdout.split(), f"-Wl,-rpath,{prefix}/lib",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return program


def test_a_cpp_program_runs_a_library_in_four_threads(prefix, exported, tmp_path):
    program = compiled(prefix, tmp_path, "main.cc", PROGRAM, "-std=c++17", "-pthread")
    done = run(program, exported)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == ["x float32 2", "n int64 1"]
    expected = [2 * i * float(WEIGHT.sum()) for i in range(4)]
    np.testing.assert_allclose([float(line) for line in lines[2:6]], expected, atol=1e-3)
    assert lines[6] == "input x is float32, not float64"


def test_open_shapes_are_given_before_a_run(prefix, tmp_path):
    x = relay.var("x", shape=("rows", 4), dtype="float32")
    y = relay.var("y", shape=("rows", 1), dtype="float32")
    mod = relay.with_bounds(tvm.IRModule.from_expr(relay.Function([x, y], x + y)), {"rows": 8})
    relay.build(mod, target="llvm").export_library(tmp_path / "open.so")
    program = compiled(prefix, tmp_path, "open.cc", OPEN, "-std=c++17")
    done = run(program, tmp_path / "open.so")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        "input x has extents that running tells; give it a shape first",
        "input x has the extent 9 along axis 0, expected at most 8: it is rows",
        "input x has the extent 5 along axis 1, expected 4",
        "3 42.0",
        "1 6.0",
        "8 272.0",
        "input y has the extent 2 along axis 0, expected 8: it is rows",
    ]


def test_a_c_program_binds_its_own_memory(prefix, exported, tmp_path):
    program = compiled(prefix, tmp_path, "main.c", PLAIN_C, "-std=c99", "-pedantic")
    done = run(program, exported)
    assert done.returncode == 0, done.stdout + done.stderr
    unready, unaligned, result = done.stdout.splitlines()
    assert unready == "the session has not run yet"
    assert "input x does not begin at a multiple of 64 bytes" in unaligned
    assert result == f"float32 3 {WEIGHT[0, 0]:.5f}"


def test_damaged_and_foreign_files_are_refused_before_their_code_is_loaded(
    prefix, exported, tmp_path
):
    program = compiled(prefix, tmp_path, "main.cc", PROGRAM, "-std=c++17", "-pthread")
    whole = exported.read_bytes()
    other = bytearray(whole)
    other[18:20] = (8).to_bytes(2, "little")  # the machine of ELF's header: MIPS
    code = bytearray(whole)
    code[4096] ^= 1
    metadata = bytearray(whole)
    metadata[whole.index(b'{"format"') + 12] ^= 1
    for content, message in (
        (b"", "is not a shared library"),
        (whole[: len(whole) // 2], "corrupt or truncated"),
        (bytes(other), "another kind of processor"),
        (bytes(code), "its code does not have its checksum"),
        (bytes(metadata), "metadata do not have their checksum"),
        ((prefix / "lib/libbaton_runtime.so").read_bytes(), "holds no metadata of Baton's"),
    ):
        path = tmp_path / "damaged.so"
        path.write_bytes(content)
        done = run(program, path)
        assert done.returncode == 1
        assert message in done.stdout
    assert "No such file" in run(program, tmp_path / "missing.so").stdout


def test_a_file_that_is_replaced_while_it_is_loaded_gives_one_version(prefix, tmp_path):
    paths = [tmp_path / "sum.so", tmp_path / "product.so"]
    for path, operator, value in zip(paths, (relay.add, relay.multiply), (2.0, 5.0)):
        x = relay.var("x", shape=(128,), dtype="float32")
        weight = relay.const(np.full(128, value, "float32"))
        mod = tvm.IRModule.from_expr(relay.Function([x], operator(x, weight)))
        relay.build(mod, target="llvm").export_library(path)
    program = compiled(prefix, tmp_path, "replaced.cc", REPLACED, "-std=c++17", "-pthread")
    done = run(program, *paths, tmp_path / "live.so")
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(done.stdout.split()) <= {"12", "50"}  # not 15 and 20, which mix the two


def test_a_file_that_is_not_regular_is_rejected_without_waiting(prefix, tmp_path):
    program = compiled(prefix, tmp_path, "main.cc", PROGRAM, "-std=c++17", "-pthread")
    os.mkfifo(tmp_path / "fifo.so")
    for path in (tmp_path / "fifo.so", tmp_path, Path("/dev/zero")):
        done = run(program, path)
        assert done.returncode == 1
        assert f"{path} is not a regular file" in done.stdout


@pytest.fixture(scope="module")
def serve(prefix, tmp_path_factory):
    """The example's program."""
    build = tmp_path_factory.mktemp("serve")
    if shutil.which("cmake") is None:
        pytest.skip("there is no cmake")
    for command in (
        ["-S", ROOT / "examples/serve", "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}"],
        ["--build", build],
    ):
        done = run("cmake", *command)
        assert done.returncode == 0, done.stdout + done.stderr
    return build / "serve"


@contextmanager
def serving(*command):
    """The port of a server."""
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield int(server.stdout.readline().split()[-1])
        finally:
            server.kill()


def test_the_example_serves_four_clients(serve, exported):
    with serving(serve, exported, 0) as port, ThreadPoolExecutor(4) as clients:
        list(clients.map(lambda seed: ask(port, seed), range(4)))


def test_the_example_closes_silent_connections_and_those_beyond_its_limit(serve, exported):
    with serving(serve, exported, 0, 1, 1, 2) as port:
        address = ("127.0.0.1", port)
        with (
            socket.create_connection(address, timeout=60) as first,
            socket.create_connection(address, timeout=60) as second,
            socket.create_connection(address, timeout=60) as third,
        ):
            assert third.recv(1) == b""  # at once: two are served
            first.sendall(b"half")
            assert (first.recv(1), second.recv(1)) == (b"", b"")  # after a second
        ask(port, 0)


@pytest.mark.parametrize("more", [["0"], ["x"], ["1", "0"], ["1", "1", "99999"], ["1"] * 4])
def test_the_example_refuses_numbers_out_of_range(serve, exported, more):
    done = run(serve, exported, "0", *more)
    assert done.returncode == 2 and "usage: serve" in done.stderr


def ask(port: int, seed: int) -> None:
    """Twenty requests over one connection."""
    rng = np.random.default_rng(seed)
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        answers = connection.makefile("rb")
        for number in range(20):
            x = rng.standard_normal((2, 4)).astype("float32")
            connection.sendall(x.tobytes() + np.int64(number).tobytes())
            scores = np.frombuffer(answers.read(2 * 3 * 4), "float32").reshape(2, 3)
            np.testing.assert_allclose(scores, np.maximum(x, 0) @ WEIGHT, rtol=1e-4, atol=1e-5)
            assert np.frombuffer(answers.read(8), "int64") == [number + 1]


def test_a_compiler_that_fails_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(ExportError, match="false does not compile"):
        build_cpp_runtime(tmp_path)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"no archive", r"tvm\.whl can't be read as a wheel"),
        (["tvm/lib/libtvm_runtime.so"], r"no libtvm_ffi\.so, libtvm_runtime_extra\.so; give those"),
    ],
)
def test_wheels_that_lack_libraries(tmp_path, content, said):
    wheel = tmp_path / "tvm.whl"
    if isinstance(content, bytes):
        wheel.write_bytes(content)
    else:
        with zipfile.ZipFile(wheel, "w") as archive:
            for name in content:
                archive.writestr(name, b"")
    with pytest.raises(ExportError, match=said):
        build_cpp_runtime(tmp_path / "deploy", wheels=[wheel])
    assert not (tmp_path / "deploy").exists()
