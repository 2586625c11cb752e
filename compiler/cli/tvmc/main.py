"""The command `tvmc`: compile, run, tune, with the flags of TVM 0.18."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from compiler import auto_scheduler
from compiler.errors import BatonError
from compiler.relay.backend import Executor, Runtime
from compiler.support.numpy_files import read_npz
from compiler.support.regular_files import os_errors_as

from ..console import set_verbosity
from . import TVMCException
from .autotuner import TUNERS, tune_model
from .compiler import compile_model
from .config_options import read_config, words_of
from .frontends import get_frontend_names, load_model
from .model import TVMCPackage
from .pass_list import parse_pass_list_str
from .registry import generate_registry_args, reconstruct_registry_entity
from .result_utils import get_top_results
from .runner import FILL_MODES, run_module
from .shape_parser import parse_shape_string
from .target import generate_target_args, reconstruct_target_args
from .tracker import tracker_host_port_from_cli
from .transform import OPTIONS

# Flags that are arguments of `compile_model`, and of `tune_model`, under the same names.
_OF_COMPILE = ("opt_level", "tuning_records", "output_format", "use_vm")
_OF_TUNE = (
    *("enable_autoscheduler", "trials", "tuner", "min_repeat_ms", "early_stopping", "timeout"),
    *("repeat", "number", "parallel", "include_simple_tasks", "log_estimated_latency"),
)
_HARDWARE = (
    *("num_cores", "vector_unit_bytes", "cache_line_bytes", "max_shared_memory_per_block"),
    *("max_local_memory_per_block", "max_threads_per_block", "max_vthread_extent", "warp_size"),
)
_GONE = {"micro": "microTVM has no successor; build with target 'c' for its source"}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command and exit with its status."""
    sys.exit(_main(sys.argv[1:] if argv is None else argv))


def _main(argv: Sequence[str]) -> int:
    """Run the command; errors are printed and become the status 4, as TVM's did."""
    logging.basicConfig(stream=sys.stdout)
    parser = argument_parser()
    options = parser.parse_args(_with_config(list(argv)))
    if options.version:
        sys.stdout.write(f"{version('apache-tvm')}\n")
        return 0
    if not hasattr(options, "run"):
        parser.print_help(sys.stderr)
        return 1
    set_verbosity(options.verbose)
    if not Path(getattr(options, "FILE", __file__)).is_file():
        sys.stderr.write(
            f"Error: Input file '{options.FILE}' doesn't exist, is a broken symbolic link, or a "
            "directory.\n"
        )
        return 1
    try:
        options.run(options)
    except BatonError as error:
        sys.stderr.write(f"\n{error}\n")
        return 4
    return 0


def _with_config(words: list[str]) -> list[str]:
    """Insert the options of `--config FILE` after the subcommand.

    Raises TVMCException: the file can't be read or is not an object of flags.
    """
    if "--config" not in words[:-1]:
        return words
    at = words.index("--config")
    flags = words_of(read_config(words[at + 1]))
    return [*words[:1], *flags, *words[1:at], *words[at + 2 :]]


# ---------------------------------------------------------------- the flags


def argument_parser() -> argparse.ArgumentParser:
    """The parser of the whole command."""
    parser = argparse.ArgumentParser(prog="tvmc", description="Compile, run and tune models.")
    parser.add_argument("-v", "--verbose", action="count", default=0, help="say more")
    parser.add_argument("--version", action="store_true", help="print TVM's version and exit")
    commands = parser.add_subparsers(title="commands")
    _add_compile(commands.add_parser("compile", help="compile a model."))
    _add_run(commands.add_parser("run", help="run a compiled module."))
    _add_tune(commands.add_parser("tune", help="auto-tune a model"))
    for name, instead in _GONE.items():
        gone = commands.add_parser(name, help=f"gone: {instead}")
        gone.add_argument("words", nargs=argparse.REMAINDER)
        gone.set_defaults(run=_refuse_gone, gone=f"tvmc {name} is gone from TVM: {instead}")
    return parser


def _refuse_gone(options: Any) -> NoReturn:
    raise TVMCException(options.gone)


def _add_model(parser: argparse.ArgumentParser) -> None:
    """Flags on models, their targets and what is changed in them."""
    parser.add_argument("FILE", help="path to the input model file.")
    parser.add_argument("--config", help=argparse.SUPPRESS)
    parser.add_argument("--model-format", choices=get_frontend_names(), help="of the file.")
    parser.add_argument(
        "--input-shapes",
        type=parse_shape_string,
        help='shapes of the inputs: "name:[dim1,dim2] name2:[dim1]".',
    )
    generate_target_args(parser, required=True)
    parser.add_argument("--target-host", help="of the code around a GPU's kernels.")
    parser.add_argument("--desired-layout", nargs="+", help='such as "NHWC" or "NHWC:HWIO".')
    parser.add_argument("--desired-layout-ops", nargs="*", help="operators that get it.")
    parser.add_argument("--mixed-precision", action="store_true", help="compute in half.")
    parser.add_argument("--mixed-precision-ops", nargs="*", help="operators that always are.")
    parser.add_argument("--mixed-precision-calculation-type", default="float16")
    parser.add_argument("--mixed-precision-acc-type", help="what these operators sum in.")


def _of_model(options: Any) -> dict[str, Any]:
    """Arguments of `compile_model` and `tune_model`."""
    return {
        "tvmc_model": load_model(options.FILE, options.model_format, options.input_shapes),
        "target": options.target,
        "target_host": options.target_host,
        "additional_target_options": reconstruct_target_args(options),
        **{name: getattr(options, name) for name in OPTIONS},
    }


def _add_tracker(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rpc-key", help="the key of the devices.")
    parser.add_argument("--rpc-tracker", help='a tracker, "host:port".')


def _tracker(options: Any) -> dict[str, Any]:
    host, port = tracker_host_port_from_cli(options.rpc_tracker)
    return {"rpc_key": options.rpc_key, "hostname": host, "port": port}


def _add_compile(parser: argparse.ArgumentParser) -> None:
    _add_model(parser)
    parser.add_argument("-o", "--output", default="module.tar", help="the package to write.")
    parser.add_argument("-f", "--output-format", choices=("so", "tar", "mlf"), default="so")
    parser.add_argument("-O", "--opt-level", type=int, choices=range(4), default=3)
    parser.add_argument("--cross-compiler", default="", help="links the library.")
    parser.add_argument("--cross-compiler-options", default="", help="of the cross compiler.")
    parser.add_argument("--dump-code", default="", help='of "relay,asm".')
    parser.add_argument(
        "--disabled-pass", type=parse_pass_list_str, default=[], help="names, with commas."
    )
    parser.add_argument("--pass-config", action="append", metavar="name=value")
    parser.add_argument("--tuning-records", help="a log of AutoTVM or auto_scheduler.")
    parser.add_argument("--module-name", default="default")
    for registry, default in ((Executor, "graph"), (Runtime, "cpp")):
        generate_registry_args(parser, registry, default)
    parser.add_argument("--use-vm", action="store_true")
    parser.set_defaults(run=_compile)


def _compile(options: Any) -> None:
    compile_model(
        **_of_model(options),
        **{name: getattr(options, name) for name in _OF_COMPILE},
        executor=reconstruct_registry_entity(options, Executor),
        runtime=reconstruct_registry_entity(options, Runtime),
        package_path=options.output,
        cross=options.cross_compiler or None,
        cross_options=options.cross_compiler_options,
        dump_code=options.dump_code or None,
        disabled_pass=options.disabled_pass or None,
        pass_context_configs=options.pass_config,
        mod_name=options.module_name,
    )


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("PATH", help="path to the compiled module file.")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cl, metal, vulkan, rocm...")
    parser.add_argument("--fill-mode", choices=FILL_MODES, default="random")
    parser.add_argument("-i", "--inputs", help="an .npz of inputs.")
    parser.add_argument("-o", "--outputs", help="an .npz to write the outputs to.")
    parser.add_argument("--print-time", action="store_true")
    parser.add_argument("--print-top", type=int, metavar="N", help="the N largest values.")
    parser.add_argument("--profile", action="store_true", help="print each kernel's time.")
    parser.add_argument("--end-to-end", action="store_true", help="time copies as well.")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--number", type=int, default=1)
    _add_tracker(parser)
    parser.set_defaults(run=_run)


def _run(options: Any) -> None:
    result = run_module(
        TVMCPackage(options.PATH),
        options.device,
        **_tracker(options),
        inputs=_inputs(options.inputs),
        fill_mode=options.fill_mode,
        benchmark=options.print_time,
        repeat=options.repeat,
        number=options.number,
        profile=options.profile,
        end_to_end=options.end_to_end,
    )
    if options.print_time:
        sys.stdout.write(f"{result.format_times()}\n")
    if options.print_top:
        sys.stdout.write(f"{get_top_results(result, options.print_top)}\n")
    if options.outputs:
        result.save(options.outputs)


def _inputs(path: str | None) -> dict[str, np.ndarray]:
    if not path:
        return {}
    with os_errors_as(TVMCException, f"--inputs {path} is not an .npz of arrays"):
        return read_npz(path)


def _add_tune(parser: argparse.ArgumentParser) -> None:
    _add_model(parser)
    parser.add_argument("-o", "--output", required=True, help="the log, appended to.")
    parser.add_argument("--tuning-records", help="a log to learn from.")
    parser.add_argument("--enable-autoscheduler", action="store_true")
    parser.add_argument("--include-simple-tasks", action="store_true")
    parser.add_argument("--log-estimated-latency", action="store_true")
    parser.add_argument("--tuner", choices=TUNERS, default="xgb")
    parser.add_argument("--trials", type=int, default=1000, help="of the whole model.")
    parser.add_argument("--early-stopping", type=int)
    parser.add_argument("--min-repeat-ms", type=int)
    parser.add_argument("--number", type=int, default=10)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--parallel", type=int, default=4)
    parser.add_argument("--timeout", type=int, default=10)
    parser.add_argument("--tasks", default="all", help='of "all", "list", "3", "1-5", "-5,9-".')
    for name in _HARDWARE:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int)
    _add_tracker(parser)
    parser.set_defaults(run=_tune)


def _tune(options: Any) -> None:
    hardware = {name: getattr(options, name) for name in _HARDWARE}
    given = any(value is not None for value in hardware.values())
    tune_model(
        **_of_model(options),
        **_tracker(options),
        **{name: getattr(options, name) for name in _OF_TUNE},
        tuning_records=options.output,
        prior_records=options.tuning_records,
        hardware_params=auto_scheduler.HardwareParams(**hardware) if given else None,
        tasks_filter=options.tasks,
    )
