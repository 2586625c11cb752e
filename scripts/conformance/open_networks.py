"""Compare networks with open axes, each built as one library, with onnxruntime at several sizes.

    python -m scripts.models.open_networks FOLDER       # with torch: writes the networks
    python -m scripts.conformance.open_networks FOLDER [NAME ...]

A network is right when one library gives onnxruntime's results at every size that onnxruntime
runs; it is refused when the import or the build raises a documented error, and in error otherwise.
The exit status is 1 unless all are right or refused.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from compiler import relay
from compiler.errors import BatonError

SECONDS = 900
"""Longest build and comparison of a network."""
TOLERANCE = 2e-3
"""Largest difference, relative to the largest value of the result."""


def feeds_of(facts: Mapping[str, Any], entries: Sequence[Any], size: Mapping[str, int]) -> Any:
    """Random inputs of a size for onnxruntime's description of the inputs."""
    random = np.random.default_rng(0)
    feeds = {}
    for entry in entries:
        shape = [size.get(each, each) for each in facts["inputs"][entry.name]]
        if entry.name in facts["limits"]:
            dtype = {"tensor(int64)": "int64", "tensor(int32)": "int32", "tensor(bool)": "bool"}
            values = random.integers(0, facts["limits"][entry.name], shape)
            feeds[entry.name] = values.astype(dtype[entry.type])
        else:
            feeds[entry.name] = random.standard_normal(shape).astype("float32")
    return feeds


def differences(got: np.ndarray, expected: np.ndarray) -> str:
    """Describe the difference between two results; empty if they agree."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return f"{got.dtype}{got.shape} instead of {expected.dtype}{expected.shape}"
    if not expected.size:
        return ""
    a, b = got.astype("float64"), expected.astype("float64")
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return "not finite in other elements"
    b = np.where(np.isfinite(b), b, 0)
    error = np.abs(np.where(np.isfinite(a), a, 0) - b).max() / max(np.abs(b).max(), 1e-6)
    return f"off by {error:.1e}" if error > TOLERANCE else ""


def compare(path: str, answers: Any) -> None:
    """Build a network, run it at its sizes and send (verdict, message)."""
    facts = json.loads(Path(path).with_suffix(".json").read_text())
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    peer = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    try:
        mod, params = relay.frontend.from_onnx(path)
        session = relay.build(mod, "llvm", params=params).session(num_threads=1)
    except BatonError as error:
        answers.send(("refused", f"{type(error).__name__}: {error}"))
        return
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        answers.send(
            ("error", f"{type(error).__name__}: {error} ({frame.filename}:{frame.lineno})")
        )
        return
    names, ran = [entry.name for entry in peer.get_outputs()], 0
    for size in facts["sizes"]:
        feeds = feeds_of(facts, peer.get_inputs(), size)
        try:
            expected = peer.run(names, feeds)
        except Exception as error:
            print(f"  onnxruntime at {size}: {error!s:.200}", flush=True)
            continue
        try:
            got = session.run(feeds)
        except Exception as error:
            answers.send(("error", f"at {size}: {type(error).__name__}: {error}"))
            return
        wrong = {name: differences(got[name], each) for name, each in zip(names, expected)}
        wrong = {name: text for name, text in wrong.items() if text}
        if wrong:
            answers.send(("wrong", f"at {size}: {wrong}"))
            return
        ran += 1
    answers.send(("right" if ran == len(facts["sizes"]) else "fewer sizes", f"{ran} sizes"))


def verdict_of(path: Path) -> tuple[str, str]:
    """Check a network in a separate process, which may crash or hang."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=compare, args=(str(path), sender))
    process.start()
    sender.close()
    try:
        if receiver.poll(SECONDS):
            return receiver.recv()
        return "error", f"more than {SECONDS} s"
    except EOFError:
        process.join()
        return "error", f"the process ended with {process.exitcode}"
    finally:
        process.terminate()
        process.join()


def main(folder: str, *names: str) -> int:
    """Print the verdict of each network, then how many there are of each."""
    counts: Counter[str] = Counter()
    for path in sorted(Path(folder).glob("*.onnx")):
        if names and path.stem not in names:
            continue
        verdict, message = verdict_of(path)
        counts[verdict] += 1
        print(f"{verdict:12}{path.stem:32}{message}", flush=True)
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))
    return int(bool(set(counts) - {"right", "refused"}))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
