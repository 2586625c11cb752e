"""Everything that reads files of strangers: good files, how they are damaged, what must hold then.

A reader may refuse a file with an error of `compiler.errors`. What it accepts has to be whole and
consistent; an assertion here says how that shows.
"""

from __future__ import annotations

import functools
import gzip
import importlib.util
import itertools
import json
import os
import pathlib
import re
import struct
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np

from . import mutate
from .mutate import Damage, change_bytes, change_json, change_text

TESTS = pathlib.Path(__file__).resolve().parents[2] / "tests"
ORACLE = TESTS / "oracle"


@dataclass(frozen=True)
class Reader:
    """One kind of file."""

    seeds: Callable[[], Sequence[bytes]]
    """Returns good files of the kind; called in the process that reads."""
    read: Callable[[pathlib.Path], object]
    """Raises an error of `compiler.errors`, or AssertionError if the result is inconsistent."""
    damage: Damage = change_bytes
    weight: float = 1.0
    """Share of the files of a run."""
    needs: str = ""
    """A package without which the kind is left out."""

    @property
    def available(self) -> bool:
        """Whether its package is installed."""
        return not self.needs or importlib.util.find_spec(self.needs) is not None


def oracle_json(name: str) -> Any:
    """A JSON file of the oracle."""
    data = (ORACLE / name).read_bytes()
    return json.loads(gzip.decompress(data) if name.endswith(".gz") else data)


# ---------------------------------------------------------------- tuning logs


def autotvm_logs() -> list[bytes]:
    """Short logs of both versions, and single lines in all spellings."""
    data = TESTS / "compiler" / "records" / "autotvm" / "data"
    lines = json.loads((data / "formats" / "lines.json").read_text())
    accepted = [row["line"].encode() for row in lines if row["outcome"] == "accepted"]
    logs = [b"".join(path.read_bytes().splitlines(True)[:4]) for path in data.glob("*.log")]
    shapes = [[4, 64, "float32"], [32, 64, "float32"], None, "float32"]
    knobs = [["tile_y", "sp", [-1, 1, 4]], ["tile_x", "sp", [-1, 1, 16]], ["tile_k", "sp", [-1, 8]]]
    old = {"i": ["llvm", "topi_nn_task", [], {}, ["dense", *shapes],
                 {"i": 7, "t": "direct", "c": None, "e": knobs}],
           "r": [[2e-5], 0, 1.5, 1600000000.0], "v": 0.1}  # fmt: skip
    return [*logs, *accepted, b"\n".join(accepted[:5]), json.dumps(old).encode()]


def read_autotvm_log(path: pathlib.Path) -> None:
    """The quick reader has what the one of whole records has; records can be written again."""
    from compiler import autotvm
    from compiler.records.autotvm.ranking import rank_log
    from compiler.records.autotvm.record import decode, encode, load_from_file

    ranked = {record.line: record for record in rank_log(path)}
    measured = list(load_from_file(path))
    assert len(measured) == len(ranked)
    for inp, result in measured:
        again, times = decode(encode(inp, result))
        assert (again.task.workload, times.costs) == (inp.task.workload, result.costs)
        assert again.config.to_entity() == inp.config.to_entity()
    for context in (autotvm.apply_history_best(str(path)), autotvm.apply_graph_best(str(path))):
        for inp, _ in measured:
            context.query(inp.target, inp.task.workload)


def auto_scheduler_logs() -> list[bytes]:
    """Baton's own records and Ansor's."""
    own = TESTS / "compiler" / "records" / "auto_scheduler" / "data" / "three_kernels.json"
    lines = own.read_bytes().splitlines(keepends=True)
    short = sorted(lines, key=len)[:6]
    ansors = (ORACLE / "ansor" / "best_records.json").read_bytes().splitlines(keepends=True)[:8]
    return [*short, *ansors, b"".join([*ansors[:3], *short[:1]])]


def read_auto_scheduler_log(path: pathlib.Path) -> None:
    """What the index finds can be asked for; records can be written again."""
    from compiler import auto_scheduler
    from compiler.records.ansor.record import AnsorRecord
    from compiler.records.auto_scheduler.record import load_records, parse_line

    context = auto_scheduler.ApplyHistoryBest(str(path), include_compatible=True)
    for record in load_records(path):
        again = parse_line(record.to_line())
        assert (again.workload_key, again.cost) == (record.workload_key, record.cost)
        assert again.to_line() == record.to_line()
        if isinstance(record, AnsorRecord):
            list(context.find_ansor(record.log_target, record.key))
            list(context.find_by_shapes(record.log_target, (8, 8)))
        else:
            context.query(record.target, record.workload_key)


@functools.cache
def ansor_nests() -> dict[str, Any]:
    """Recorded steps on computes, by workload key."""
    return oracle_json("ansor/loop_nests.json.gz")


@functools.cache
def compute_dag(key: str) -> Any:
    """The computes of a workload key."""
    from tvm.script import from_source
    from tvm.script import tirx as T

    from compiler.records.ansor.dag import read_dag

    return read_dag(from_source(ansor_nests()["computes"][key], {"T": T}))


def ansor_steps() -> list[bytes]:
    """Key and steps of genuine records."""
    records = [nest["record"]["i"] for nest in ansor_nests()["nests"]]
    return [json.dumps([task[0], state[1]]).encode() for task, state in records]


def change_steps(data: bytes, rng: Any) -> bytes:
    """Change the steps, not the key."""
    key, steps = json.loads(data)
    return json.dumps([key, mutate.change_value(steps, rng)]).encode()


def replay_steps(path: pathlib.Path) -> None:
    """Damaged steps are refused, or give a schedule of the same function."""
    from compiler.errors import RecordError
    from compiler.records.ansor.replay import replay
    from compiler.records.ansor.steps import parse_steps
    from compiler.records.untrusted_json import as_record_errors, read_json

    value = read_json(path.read_text())
    key = value[0] if isinstance(value, list) and len(value) == 2 else None
    if not isinstance(key, str) or key not in ansor_nests()["computes"]:
        raise RecordError("the key is damaged, not the steps")
    dag = compute_dag(key)
    result = replay(dag, as_record_errors(parse_steps)(value[1]))
    assert len(result.func.params) == len(dag.func.params)


def traced_records() -> list[bytes]:
    """Baton's own records with their functions."""
    own = TESTS / "compiler" / "records" / "auto_scheduler" / "data" / "three_kernels.json"
    lines = own.read_bytes().splitlines()
    return sorted((line for line in lines if b'"tir"' in line), key=len)[:4]


def change_trace(data: bytes, rng: Any) -> bytes:
    """Change the trace, or now and then the function."""
    row = json.loads(data)
    if rng.random() < 0.2:
        row["workload"]["tir"] = change_json(row["workload"]["tir"].encode(), rng).decode()
    else:
        row["trace"] = mutate.change_value(row["trace"], rng)
    return json.dumps(row).encode()


def replay_trace(path: pathlib.Path) -> None:
    """A damaged trace is refused, or gives a schedule of the function."""
    from compiler.records.auto_scheduler.record import Record, parse_line, replay

    record = parse_line(_text_of(path))
    assert isinstance(record, Record)
    func = record.unscheduled()
    assert len(replay(record, func).params) == len(func.params)


def databases() -> list[bytes]:
    """Both files of a MetaSchedule database, with a line of zeros between them."""
    from compiler.auto_scheduler.metaschedule import RECORDS, WORKLOADS, write_database
    from compiler.records.auto_scheduler.record import Record, load_records

    own = TESTS / "compiler" / "records" / "auto_scheduler" / "data" / "three_kernels.json"
    records = [each for each in load_records(own) if isinstance(each, Record) and each.tir][:2]
    with tempfile.TemporaryDirectory() as folder:
        write_database(folder, records)
        files = [pathlib.Path(folder, name).read_bytes() for name in (WORKLOADS, RECORDS)]
    return [b"0\n".join(files)]


def read_database(path: pathlib.Path) -> None:
    """The two files as a folder."""
    from compiler.auto_scheduler import metaschedule

    folder = path.with_name(path.name + ".database")
    folder.mkdir(exist_ok=True)
    workloads, _, records = path.read_bytes().partition(b"\n0\n")
    (folder / metaschedule.WORKLOADS).write_bytes(workloads + b"\n")
    (folder / metaschedule.RECORDS).write_bytes(records)
    for record in metaschedule.read_database(folder):
        assert record.to_line()


# ---------------------------------------------------------------- parameters


def tensors() -> dict[str, np.ndarray]:
    """Arrays of several types and ranks, one of them empty."""
    rng = np.random.default_rng(0)
    kinds = ("float32", "float16", "int8", "int64", "bool", "uint8", "float64")
    found = {
        f"p{i}": rng.uniform(-3, 3, (2,) * (i % 4)).astype(kind) for i, kind in enumerate(kinds)
    }
    return {**found, "empty": np.zeros((0, 3), "float32")}


def same_arrays(got: Any, wanted: Any) -> None:
    """Names, types and values are equal, NaN included."""
    if isinstance(wanted, dict):
        assert list(got) == list(wanted)
        got, wanted = got.values(), wanted.values()
    for one, other in zip(got, wanted, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert np.array_equal(one, other, equal_nan=one.dtype.kind in "fc")


def param_dicts() -> list[bytes]:
    """`relay.save_param_dict`, and a file of the last TVM with Relay."""
    from compiler import relay

    return [bytes(relay.save_param_dict(tensors())), (ORACLE / "relay" / "mlp.params").read_bytes()]


def read_param_dict(path: pathlib.Path) -> None:
    """What is read is written and read again."""
    from compiler import relay
    from compiler.relay.saved.params import read_params

    found = read_params(path.read_bytes())
    same_arrays(read_params(relay.save_param_dict(found)), found)


def mxnet_params() -> list[bytes]:
    """Parameter files of all MXNet versions."""
    found = [path.read_bytes() for path in sorted((ORACLE / "mxnet").glob("params_*.params"))]
    return [*found, (ORACLE / "mxnet" / "b02_mlp-0000.params").read_bytes()]


def read_mxnet_params(path: pathlib.Path) -> None:
    """What is read is written and read again."""
    from compiler.mxnet_format.params import load_params, save_params

    found = load_params(path.read_bytes())
    arrays = found.values() if isinstance(found, dict) else found
    assert all(isinstance(array, np.ndarray) for array in arrays)
    small = sum(array.nbytes for array in arrays) < 1_000_000
    if found and small and all(array.size or array.shape == (0,) for array in arrays):
        save_params(path, found)
        same_arrays(load_params(path), found)


def safetensors_files() -> list[bytes]:
    """One file of several types."""
    from compiler.mxnet.array import safetensors

    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "a.safetensors")
        safetensors.write(path, tensors())
        return [path.read_bytes()]


def _header(data: bytes) -> tuple[int, int]:
    return 8, 8 + struct.unpack_from("<Q", data)[0]


def change_safetensors(data: bytes, rng: Any) -> bytes:
    """Change the header as JSON, with its length right."""
    start, stop = _header(data)
    header = change_json(data[start:stop], rng)
    return struct.pack("<Q", len(header)) + header + data[stop:]


def read_safetensors(path: pathlib.Path) -> None:
    """What is read is written and read again."""
    from compiler.mxnet.array import safetensors

    found = safetensors.read(path)
    safetensors.write(path, found)
    same_arrays(safetensors.read(path), found)


# ---------------------------------------------------------------- models


def symbols() -> list[bytes]:
    """Symbols of models, of partitioned graphs and of control flow."""
    folder = ORACLE / "mxnet"
    found = [path.read_bytes() for path in sorted(folder.glob("*-symbol.json"))]
    for path in sorted(folder.glob("a*.json")):
        found.append(json.loads(path.read_text())["runs"]["plain"]["partitioned_symbol"])
    found.append(oracle_json("mxnet/c_deferred/c18_block_foreach.json")["symbol"])
    return [each if isinstance(each, bytes) else json.dumps(each).encode() for each in found]


def read_symbol(path: pathlib.Path) -> Any:
    """Everything that does not import the symbol works, and writing it is stable."""
    from compiler.mxnet.symbol import Symbol

    symbol = Symbol.loads(path.read_bytes())
    symbol.list_arguments(), symbol.list_auxiliary_states(), symbol.attr_dict()
    symbol.list_outputs(), symbol.get_internals().list_outputs()
    assert Symbol.loads(symbol.tojson()).tojson() == symbol.tojson()
    return symbol


def _claim_all(graph_json: str, ids: list[int], options: dict[str, str]) -> None:
    ids[:] = [-1] * len(ids)


def import_symbol(path: pathlib.Path) -> None:
    """The symbol is partitioned, written again, and its types are inferred."""
    from compiler.mxnet.symbol import Symbol
    from compiler.partition import Strategy, list_partitioners, register

    if "damaged" not in list_partitioners():
        register("damaged", Strategy("all", _claim_all))
    symbol = Symbol.loads(path.read_bytes()).optimize_for("damaged")
    assert Symbol.loads(symbol.tojson()).tojson() == symbol.tojson()
    symbol.infer_shape(data=(1, 3, 16, 16))


def onnx_models() -> list[bytes]:
    """Small models that the fuzzer of models draws and the importer does not refuse."""
    from .generator import draw

    found = [draw(7, number, 4).model.SerializeToString() for number in range(24)]
    return [model for model in found if len(model) < 20_000 and _is_imported(model)]


def _is_imported(model: bytes) -> bool:
    from compiler import relay
    from compiler.errors import BatonError

    try:
        relay.frontend.from_onnx(model)
    except BatonError:
        return False
    return True


def read_onnx(path: pathlib.Path) -> None:
    """The model is imported."""
    from compiler import relay

    relay.frontend.from_onnx(path.read_bytes())


def relay_programs(form: str) -> list[bytes]:
    """Programs of the oracle as "text" or "json"."""
    lines = gzip.decompress((ORACLE / "relay" / "programs.jsonl.gz").read_bytes()).splitlines()
    found = [json.loads(line).get(form, "") for line in lines]
    return [text.encode() for text in found if 0 < len(text) < 4_000]


def _text_of(path: pathlib.Path) -> str:
    return path.read_bytes().decode("utf-8", "surrogateescape")


def read_relay_text(path: pathlib.Path) -> None:
    """The text is read; what is read can be printed, and the print read again."""
    from compiler import relay
    from compiler.relay.text.parser import parse_module

    parse_module(_text_of(path))
    mod = relay.fromtext(_text_of(path))
    relay.fromtext(relay.astext(mod))


def saved_modules() -> list[bytes]:
    """Modules that this TVM saved: of Relay's operators, of Relax's, and with kernels."""
    import tvm
    from tvm import relax

    from compiler import relay

    mod, _ = small_module()
    x, y = relay.var("x", shape=(2, 3)), relay.var("y", shape=(), dtype="bool")
    total = relay.sum(relay.add(x, relay.const(np.ones((2, 3), "float32"))), axis=1)
    pair = relay.Tuple([relay.If(y, total, relay.negative(total)), relay.split(x, 3, axis=1)[1]])
    branches = relay.to_relax(tvm.IRModule.from_expr(relay.Function([x, y], pair)))
    made = (mod, relay.to_relax(mod), branches, relax.transform.LegalizeOps()(relay.to_relax(mod)))
    return [str(tvm.ir.save_json(each)).encode() for each in made]


def read_relay_json(path: pathlib.Path) -> None:
    """The module is read; what is read can be printed, if it has no kernels, and the print read."""
    from tvm import tirx

    from compiler import relay

    mod = relay.load_json(_text_of(path), allow_code=True)
    functions = getattr(mod, "functions", {}).values()
    if not any(isinstance(function, tirx.PrimFunc) for function in functions):
        relay.fromtext(relay.astext(mod))


_CODE = re.compile(
    r'"(tirx\.PrimFunc|relax\.expr\.ExternFunc|ffi\.Module|tirx\.call_\w+|relax\.call_(?!expr)\w+|'
    r"\w+\.call_extern\w*)"
)
"""How a saved module names what would run code of its writer."""


def modules_with_code() -> list[bytes]:
    """Saved modules, and the same with nodes that call functions by name."""
    seeds = saved_modules()
    calls = ("tirx.call_extern", "tirx.call_packed", "relax.call_dps_packed", "relax.call_tir")
    hostile: list[bytes] = []
    for seed, call in itertools.product(seeds[1:3], calls):
        document = json.loads(seed)
        ops = [node for node in document["nodes"] if node["type"] == "ir.Op"]
        ops[len(hostile) % len(ops)]["data"] = call
        hostile.append(json.dumps(document).encode())
    return [*seeds, *hostile]


def read_untrusted_module(path: pathlib.Path) -> None:
    """What is read without trust holds no kernel and calls no function by its name."""
    import tvm

    from compiler import relay
    from compiler.errors import SavedModuleError

    try:
        made = relay.load_json(_text_of(path))
    except SavedModuleError:
        return
    found = _CODE.search(str(tvm.ir.save_json(made)))
    assert found is None, f"a module that holds {found} was accepted"


_TRACE_CODE = (
    "pragma_import_llvm",
    "pragma_import_c",
    "pragma_debug_skip_region",
    "UnsafeSetDType",
)


def traces_with_code() -> list[bytes]:
    """Baton's own records, with instructions and annotations that change or add code."""
    own = TESTS / "compiler" / "records" / "auto_scheduler" / "data" / "three_kernels.json"
    lines = sorted(own.read_bytes().splitlines(keepends=True), key=len)[:6]
    hostile: list[bytes] = []
    for line, code in itertools.product(lines, _TRACE_CODE):
        row = json.loads(line)
        instructions = row["trace"][0]
        if not instructions:
            continue
        first = next(each for each in instructions if each[0] == "GetSBlock")
        kind = code if code == "UnsafeSetDType" else "Annotate"
        instructions.append([kind, [first[3][0], "text"], [code], []])
        hostile.append(json.dumps(row).encode())
    return [*lines, *hostile]


def read_untrusted_trace(path: pathlib.Path) -> None:
    """No trace that adds or changes code passes the check that is made before it is applied."""
    from compiler.errors import RecordError
    from compiler.records.auto_scheduler.record import Record, load_records
    from compiler.records.auto_scheduler.trace_check import check_trace

    for record in load_records(path):
        if not isinstance(record, Record):
            continue
        try:
            check_trace(record.trace)
        except RecordError:
            continue
        found = [code for code in _TRACE_CODE if code in json.dumps(record.trace)]
        assert not found, f"a trace with {found} passed"


def tflite_models() -> list[bytes]:
    """The network of the importer's tests."""
    spec = importlib.util.spec_from_file_location(
        "test_from_tflite",
        TESTS / "compiler" / "relay" / "frontend" / "tflite" / "test_from_tflite.py",
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [module.network()[0]]


def read_tflite(path: pathlib.Path) -> None:
    """The model is imported."""
    from compiler import relay

    relay.frontend.from_tflite(path.read_bytes())


# ---------------------------------------------------------------- libraries and caches


@functools.cache
def small_module() -> tuple[Any, dict[str, np.ndarray]]:
    """relu(x w + b) of 2 rows of 4."""
    import tvm

    from compiler import relay

    rng = np.random.default_rng(0)
    x = relay.var("x", shape=(2, 4), dtype="float32")
    w = relay.var("w", shape=(6, 4), dtype="float32")
    b = relay.var("b", shape=(6,), dtype="float32")
    body = relay.nn.relu(relay.nn.bias_add(relay.nn.dense(x, w), b))
    params = {name: rng.standard_normal(shape).astype("float32")
              for name, shape in (("w", (6, 4)), ("b", (6,)))}  # fmt: skip
    return tvm.IRModule.from_expr(relay.Function([x, w, b], body)), params


@functools.cache
def small_library() -> Any:
    """The module above, built."""
    import tvm

    from compiler import relay

    mod, params = small_module()
    with tvm.transform.PassContext(opt_level=3):
        return relay.build(mod, target="llvm -mcpu=x86-64-v2", params=params)


DATA = np.linspace(-1, 1, 8, dtype="float32").reshape(2, 4)


def scores(library: Any) -> np.ndarray:
    """What a library makes of `DATA`."""
    import tvm

    from compiler.runtime import graph_executor

    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(x=DATA)
    return module.get_output(0).numpy()


@functools.cache
def exported(ending: str) -> list[bytes]:
    """The file that `export_library` writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, f"small.{ending}")
        small_library().export_library(str(path))
        return [path.read_bytes()]


_NUMBERS = itertools.count()
"""The dynamic loader keeps what it knows by a name."""


def check_library(path: pathlib.Path) -> Any:
    """A file that passes all checks before its code is loaded describes what was exported."""
    from compiler.runtime.load import check_file

    checked = check_file(path, verify_weights=True)
    wanted = small_library()
    assert checked.metadata.inputs == wanted.metadata.inputs
    assert checked.metadata.report == json.loads(json.dumps(wanted.metadata.report))
    for name, value in wanted.params.items():
        assert np.array_equal(checked.params[name].numpy(), value.numpy())
    return checked


def load_library(path: pathlib.Path) -> None:
    """A file that is loaded computes what the library did."""
    from compiler.runtime import load_module

    check_library(path)
    named = path.with_name(f"small{next(_NUMBERS)}.so")
    path.rename(named)
    try:
        library = load_module(named, verify_weights=True)
    finally:
        named.unlink()
    assert np.array_equal(scores(library), scores(small_library()))


def change_elf_header(data: bytes, rng: Any) -> bytes:
    """Change a bit or a byte of the 64 bytes that say where tables are."""
    at = rng.randrange(64)
    changed = rng.choice([data[at] ^ 1 << rng.randrange(8), rng.randrange(256)])
    return data[:at] + bytes([changed]) + data[at + 1 :]


def graph_jsons() -> list[bytes]:
    """The graph of a library."""
    return [small_library().get_graph_json().encode()]


def run_graph_json(path: pathlib.Path) -> None:
    """An executor of a library with a damaged graph runs as the library, or refuses."""
    import tvm

    from compiler.runtime import graph_executor

    library = small_library()
    module = graph_executor.create(_text_of(path), library.get_lib(), tvm.cpu())
    module.set_input(**library.get_params())
    module.run(x=DATA)
    for number in range(module.get_num_outputs()):
        module.get_output(number).numpy()


def metadata_texts() -> list[bytes]:
    """The metadata of a library."""
    return [small_library().metadata.to_json().encode()]


def read_metadata(path: pathlib.Path) -> None:
    """What is read is written and read again."""
    from compiler.runtime.metadata import Metadata

    found = Metadata.from_json(path.read_bytes())
    assert Metadata.from_json(found.to_json()) == found


@functools.cache
def filled_cache() -> tuple[Any, dict[str, bytes]]:
    """A cache that has one library with its kernels, and its files as they were written."""
    import tvm

    from compiler import relay
    from compiler.lowering.cache.kernel_cache import LIMIT_VARIABLE, user_cache

    folder = tempfile.mkdtemp(prefix="fuzz-", dir=os.environ.get("XDG_CACHE_HOME"))
    mod, params = small_module()
    with mock.patch.dict(os.environ, {"XDG_CACHE_HOME": folder, LIMIT_VARIABLE: "1000000000"}):
        cache = user_cache()
        with tvm.transform.PassContext(opt_level=3):
            built = relay.build(mod, target="llvm -mcpu=x86-64-v3", params=params)
    assert built.kept_as, f"no library was kept: {built.report.cache}"
    files = pathlib.Path(folder, "baton", "kernels").iterdir()
    return cache, {path.name: path.read_bytes() for path in files}


def cache_entries(suffix: str) -> list[bytes]:
    """The files of a kind of a cache, each behind its name."""
    _, files = filled_cache()
    return [data for name, data in sorted(files.items()) if name.endswith(suffix)][:1]


def _entry(suffix: str, path: pathlib.Path) -> str:
    """Put a damaged file in its place; returns its key."""
    cache, files = filled_cache()
    name = min(name for name in files if name.endswith(suffix))
    place = cache.folder / name
    place.write_bytes(path.read_bytes())
    place.chmod(0o600)
    return name.removesuffix(suffix)


def read_kernel_entry(path: pathlib.Path) -> None:
    """The object code as it was kept, or none."""
    from compiler.errors import RecordError

    key = _entry(".kernel", path)
    cache, files = filled_cache()
    code = cache.get(key)
    if code is None:
        raise RecordError("compiled again")
    assert files[key + ".kernel"].endswith(code) and len(code) > 100


def read_library_entry(path: pathlib.Path) -> None:
    """The library as it was kept, or none."""
    from tvm.target import Target

    from compiler.errors import RecordError
    from compiler.lowering.cache.library_cache import CacheEntry

    _, files = filled_cache()
    for name, data in files.items():
        if name.endswith(".kernel"):
            (filled_cache()[0].folder / name).write_bytes(data)
    slot = CacheEntry(filled_cache()[0], _entry(".library", path), Target("llvm"))
    library = slot.restore(small_module()[0], {})
    if library is None:
        raise RecordError("built again")
    assert np.allclose(scores(library), scores(small_library()), rtol=1e-5)


def contests() -> list[bytes]:
    """What `prefer="fastest"` keeps."""
    rows = [{"key": f"{n:064x}", "logged_seconds": 1e-5 * n, "own_seconds": 2e-5} for n in (1, 2)]
    return ["".join(json.dumps(row) + "\n" for row in rows).encode()]


def read_contests(path: pathlib.Path) -> None:
    """Outcomes that can be read are pairs of numbers."""
    from compiler.records import ab_benchmark

    with mock.patch.object(ab_benchmark, "_kept_file", lambda: path):
        outcome = ab_benchmark.kept(f"{1:064x}")
        ab_benchmark.content_digest()
    assert outcome is None or (isinstance(outcome.log_wins, bool) and str(outcome))


_RELAY_PIECES = (
    *("(", ")", "{", "}", "[", "]", ",", ";", "=", "->", "=>", ".", "%", "@", "/*", "*/", "//"),
    *("fn", "let", "if", "else", "match", "def", "type", "meta[relay.Constant][0]", "%0", "%x"),
    *("1f", "-1", "1e999f", "999999999999999999999", "nan", "inff64", '"', "\\", "\x00", "é", "?"),
    *("Tensor[(1), float32]", "Tensor[(", "ref(", "nn.conv2d", "None", "True", "#[metadata]"),
)
_JSON_PIECES = ("0", "-1", "9999", "[]", "{}", "null", '""', '"0"', "1.5", "true", '"relay.Call"')
_JSON = mutate.any_of(change_json, change_json, change_bytes)
_LOG_LINE = mutate.change_line(change_json, change_json, change_bytes)
_RELAY_TEXT = change_text(*_RELAY_PIECES)
_RELAY_JSON = mutate.any_of(change_json, change_text(*_JSON_PIECES))
_SAFETENSORS = mutate.any_of(change_bytes, change_safetensors)
_ONNX = mutate.any_of(mutate.change_fields, mutate.change_fields, change_bytes)
_LIBRARY = mutate.any_of(change_bytes, change_elf_header)

READERS = {
    "autotvm log": Reader(autotvm_logs, read_autotvm_log, _LOG_LINE, 2),
    "auto_scheduler log": Reader(auto_scheduler_logs, read_auto_scheduler_log, _LOG_LINE, 2),
    "trace": Reader(traced_records, replay_trace, change_trace, 0.3),
    "ansor steps": Reader(ansor_steps, replay_steps, change_steps, 0.3),
    "metaschedule database": Reader(databases, read_database, _LOG_LINE, 0.2),
    "contests": Reader(contests, read_contests, _LOG_LINE),
    "param dict": Reader(param_dicts, read_param_dict, weight=3),
    "mxnet params": Reader(mxnet_params, read_mxnet_params, weight=3),
    "safetensors": Reader(safetensors_files, read_safetensors, _SAFETENSORS, 2),
    "symbol": Reader(symbols, read_symbol, _JSON, 2),
    "symbol import": Reader(symbols, import_symbol, change_json, 0.2),
    "onnx": Reader(onnx_models, read_onnx, _ONNX, 0.5),
    "tflite": Reader(tflite_models, read_tflite, weight=0.3, needs="tflite"),
    "relay text": Reader(functools.partial(relay_programs, "text"), read_relay_text, _RELAY_TEXT),
    "relay json": Reader(functools.partial(relay_programs, "json"), read_relay_json, _RELAY_JSON),
    "saved module": Reader(saved_modules, read_relay_json, change_json, 0.5),
    "untrusted module": Reader(modules_with_code, read_untrusted_module, change_json, 0.5),
    "untrusted trace": Reader(traces_with_code, read_untrusted_trace, _LOG_LINE, 0.5),
    "library": Reader(functools.partial(exported, "so"), load_library, _LIBRARY),
    "library archive": Reader(functools.partial(exported, "tar"), check_library),
    "graph json": Reader(graph_jsons, run_graph_json, _JSON),
    "metadata": Reader(metadata_texts, read_metadata, _JSON, 2),
    "kernel entry": Reader(functools.partial(cache_entries, ".kernel"), read_kernel_entry),
    "library entry": Reader(functools.partial(cache_entries, ".library"), read_library_entry),
}
"""Name of a kind of files to its reader."""
