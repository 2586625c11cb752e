"""`tvmc compile`: a package of a model's library."""

from __future__ import annotations

import io
import json
import logging
import os
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import tvm

from compiler import auto_scheduler, autotvm, legacy, relay
from compiler.support.regular_files import open_regular, os_errors_as

from . import TVMCException
from . import target as targets
from .model import TVMCModel, TVMCPackage
from .pass_config import parse_configs
from .transform import OPTIONS, apply_graph_transforms

logger = logging.getLogger("baton.tvmc")

DUMPS = ("relay", "asm")


def compile_model(
    tvmc_model: TVMCModel,
    target: str,
    opt_level: int = 3,
    executor: Any = None,
    runtime: Any = None,
    tuning_records: str | None = None,
    package_path: str | None = None,
    cross: Any = None,
    cross_options: str | None = None,
    output_format: str = "so",
    dump_code: Sequence[str] | str | None = None,
    dump_offloads: str = "",
    target_host: str | None = None,
    disabled_pass: Sequence[str] | str | None = None,
    pass_context_configs: Sequence[str] | None = None,
    additional_target_options: Mapping[str, Mapping[str, Any]] | None = None,
    use_vm: bool = False,
    mod_name: str | None = "default",
    workspace_pools: Any = None,
    instruments: Sequence[Any] | None = None,
    desired_layout: str | None = None,
    desired_layout_ops: Sequence[str] | None = None,
    mixed_precision: bool = False,
    mixed_precision_ops: Sequence[str] | None = None,
    mixed_precision_calculation_type: str | None = None,
    mixed_precision_acc_type: str | None = None,
) -> TVMCPackage:
    """Build a model and write its package.

    `target`: a TVM target; external compilers may precede it: "dnnl, llvm". `executor`, `runtime`:
    as `relay.build` takes them. `tuning_records`: a log of AutoTVM or of auto_scheduler.
    `tuning_records`: a log of either tuner; a file that does not exist is ignored with a warning.
    `package_path`: by default a file that lives as long as the model. `cross`, `cross_options`: the
    compiler that links the library, and its options. `output_format`: "so" or "tar"; "mlf" was
    microTVM's. `dump_code`: "relay", "asm" or both: text files to write next to the package.
    `pass_context_configs`: "key=value". `use_vm`: accepted: libraries run models of both kinds.
    Raises TVMCException: a value that can't be.
    """
    given = locals()
    if output_format not in ("so", "tar"):
        raise TVMCException(
            f"output format {output_format!r} belonged to microTVM, which has no successor; "
            "give so or tar"
        )
    if workspace_pools is not None or dump_offloads:
        raise TVMCException("workspace pools and dump_offloads belonged to backends that are gone")
    dumps = dump_code.split(",") if isinstance(dump_code, str) else list(dump_code or ())
    if unknown := set(dumps) - set(DUMPS):
        raise TVMCException(
            f"can't dump {', '.join(sorted(unknown))}: builds keep {' and '.join(DUMPS)} alone"
        )
    chosen, compilers = targets.target_from_cli(target, additional_target_options, target_host)
    mod = apply_graph_transforms(tvmc_model.mod, {name: given[name] for name in OPTIONS})
    mod = targets.partition(mod, tvmc_model.params, compilers)
    disabled = disabled_pass.split(",") if isinstance(disabled_pass, str) else disabled_pass
    with ExitStack() as contexts:
        contexts.enter_context(legacy.installed())  # the old keys of pass_context_configs
        if tuning_records and not os.path.exists(tuning_records):
            logger.warning("tuning records %s do not exist: built without them", tuning_records)
        elif tuning_records:
            contexts.enter_context(history(tuning_records))
        contexts.enter_context(
            tvm.transform.PassContext(
                opt_level=opt_level,
                config=parse_configs(pass_context_configs),
                disabled_pass=list(disabled or ()),
                instruments=list(instruments or ()),
            )
        )
        library = relay.build(
            mod, chosen, None, executor, runtime, params=tvmc_model.params, mod_name=mod_name
        )
    path = package_path or tvmc_model.default_package_path()
    _write_package(library, path, output_format, cross, cross_options)
    texts = {
        each: relay.astext(mod) if each == "relay" else str(library.assembly()) for each in dumps
    }
    save_dumps(Path(path).name, texts, path)
    return TVMCPackage(path)


def history(path: str) -> Any:
    """The context that applies a log of either tuner.

    Raises RecordError: the file can't be read or holds no records.
    """
    with (
        os_errors_as(TVMCException, f"{path} can't be read"),
        io.TextIOWrapper(open_regular(path), "utf-8", "replace") as log,
    ):
        first = next((line for line in log if line.strip()), "{}")
    try:
        row = json.loads(first)
    except ValueError:
        row = {}
    is_autotvm = isinstance(row, dict) and "input" in row
    if is_autotvm or not isinstance(row, dict):
        return autotvm.apply_history_best(path)
    return auto_scheduler.ApplyHistoryBest(path)


def save_dumps(module_name: str, dumps: Mapping[str, str], dump_root: str | Path = ".") -> None:
    """Write texts to `<module_name>.<kind>` in a folder, or next to a file."""
    root = Path(dump_root)
    folder = root if root.is_dir() else root.parent
    for kind, text in dumps.items():
        (folder / f"{module_name}.{kind}").write_text(text)


def _write_package(library: Any, path: str, kind: str, cross: Any, options: str | None) -> None:
    """The tar that `TVMCPackage` reads."""
    linking: dict[str, Any] = {}
    if cross is not None:
        given = (options or "").split()
        link = tvm.support.cc.cross_compiler
        linking["fcompile"] = cross if callable(cross) else link(cross, options=given)
    with tempfile.TemporaryDirectory(prefix="tvmc_") as folder, tarfile.open(path, "w") as tar:
        code = Path(folder) / f"mod.{kind}"
        library.export_library(str(code), **linking)
        tar.add(code, code.name)
        for name, data in {
            "mod.json": library.get_graph_json().encode(),
            "mod.params": bytes(relay.save_param_dict(library.get_params())),
        }.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
