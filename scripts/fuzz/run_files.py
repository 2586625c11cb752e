#!/usr/bin/env python3
"""Damaged logs, libraries, models, parameters and cache entries: an error of Baton's, or all right.

    python -m scripts.fuzz.run_files --seconds 600                    # as many files as fit
    python -m scripts.fuzz.run_files --count 100000 --kinds symbol onnx
    python -m scripts.fuzz.run_files --guided "autotvm log" --seconds 600  # with atheris
    python -m scripts.fuzz.run_files --again build/fuzz/files/symbol-0-17

Files that end in anything but an error of `compiler.errors` are written below `--findings`. The
exit status is 1 if there are any. docs/fuzzing.md says more.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import random
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from scripts.fuzz import mutate
from scripts.fuzz.attempt import Event, Say, Step, normal
from scripts.fuzz.pool import Outcome, Worker, own_environment, prepare
from scripts.fuzz.readers import READERS

BATCH = 500
"""Files of one task of a worker."""
SLOW = 5.0
"""CPU seconds from which on the reading of a file of a few KB is a finding."""
MEMORY = 4 << 30
"""Bytes of address space that a batch may take beside what the worker has."""


@dataclass(frozen=True)
class Batch:
    """Damaged files of one kind by their numbers; `place` has the file that is read, "current"."""

    kind: str
    seed: int
    numbers: range
    place: pathlib.Path
    skip: tuple[str, ...] = ()

    def run(self, say: Say, skip: Sequence[str]) -> Outcome:
        """Read all of them; what is not an error of Baton's is an event, its file kept."""
        from compiler.errors import BatonError

        reader, path = READERS[self.kind], self.place / "current"
        seeds = list(reader.seeds())
        events, read, slowest = [], 0, 0.0
        with memory_limit(MEMORY):
            for number in self.numbers:
                path.write_bytes(mutate.chosen(seeds, reader.damage, self.seed, number))
                say(Step("read", feed=str(number)))
                started, error = time.process_time(), None
                try:
                    reader.read(path)
                    read += 1
                except BatonError:
                    pass
                except (Exception, MemoryError) as failure:
                    error = Event("exception", normal(failure), feed=str(number))
                seconds = time.process_time() - started
                slowest = max(slowest, seconds)
                if error is None and seconds > SLOW:
                    error = Event("slow", f"{seconds:.0f} CPU seconds", feed=str(number))
                if error is not None:
                    events.append(error)
        events.append(Event("read", str(read), seconds=slowest))
        return Outcome(events)


class memory_limit:
    """Let the process have so many more bytes of address space, and no more."""

    def __init__(self, more: int):
        self.more = more

    def __enter__(self) -> None:
        self.before = resource.getrlimit(resource.RLIMIT_AS)
        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
        taken = pages * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + self.more, self.before[1]))

    def __exit__(self, *_: object) -> None:
        resource.setrlimit(resource.RLIMIT_AS, self.before)


@dataclass
class Tally:
    """What became of the files of one kind."""

    files: int = 0
    read: int = 0
    slowest: float = 0.0
    causes: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        found = f", {len(self.causes)} causes of failures" if self.causes else ""
        return (
            f"{self.files:8} files, {self.read:7} read, {self.files - self.read:7} refused, "
            f"slowest {self.slowest * 1e3:6.0f} ms{found}"
        )


def run(
    kinds: Iterable[str],
    findings: pathlib.Path,
    *,
    seed: int = 0,
    first: int = 0,
    count: int | None = None,
    seconds: float | None = None,
    limit: float = 60.0,
) -> dict[str, Tally]:
    """Read damaged files of some kinds, in turn; print results, keep failing files in `findings`.

    `count` files in all, or as many as fit into `seconds`, are shared out by the weights of the
    kinds, from number `first` of each. A file that takes more than `limit` seconds hangs.
    """
    _prepare()
    chosen = [kind for kind in kinds if READERS[kind].available]
    whole = sum(READERS[kind].weight for kind in chosen)
    started, tallies = time.monotonic(), {kind: Tally() for kind in chosen}
    with own_environment(), tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        worker = Worker(limit)
        try:
            for kind in chosen:
                share = READERS[kind].weight / whole
                ends = None if seconds is None else time.monotonic() + seconds * share
                last = None if count is None else first + max(1, round(count * share))
                number, tally = first, tallies[kind]
                while number != last and (ends is None or time.monotonic() < ends):
                    stop = number + BATCH if last is None else min(number + BATCH, last)
                    batch = Batch(kind, seed, range(number, stop), pathlib.Path(folder))
                    number = _one(worker, batch, tally, findings)
                print(f"{kind:22}{tally}", flush=True)
        finally:
            worker.close()
    files = sum(tally.files for tally in tallies.values())
    print(f"{files} files in {time.monotonic() - started:.0f} s (--seed {seed})")
    return tallies


def _one(worker: Worker, batch: Batch, tally: Tally, findings: pathlib.Path) -> int:
    """Have a batch read; returns the number to go on with."""
    stop = batch.numbers.stop
    for event in worker.run(batch).events:
        if event.kind == "read":
            tally.read += int(event.what)
            tally.slowest = max(tally.slowest, event.seconds)
            continue
        if event.kind in ("crash", "hang"):
            stop = int(event.feed or batch.numbers.start) + 1
        tally.causes[f"{event.kind}: {event.what}"] += 1
        if tally.causes[f"{event.kind}: {event.what}"] > 1:
            continue
        name = f"{batch.kind.replace(' ', '_')}-{batch.seed}-{event.feed}"
        findings.mkdir(parents=True, exist_ok=True)
        if event.kind in ("crash", "hang"):
            shutil.copy(batch.place / "current", findings / name)
        else:
            seeds, damage = list(READERS[batch.kind].seeds()), READERS[batch.kind].damage
            data = mutate.chosen(seeds, damage, batch.seed, int(event.feed))
            (findings / name).write_bytes(data)
        print(f"{findings / name}: {event.kind}: {event.what}", flush=True)
    tally.files += stop - batch.numbers.start
    return stop


def again(path: pathlib.Path) -> None:
    """Read a file that a run left, in this process; raises what it raises."""
    kind = path.name.rpartition("-")[0].rpartition("-")[0].replace("_", " ")
    with own_environment(), tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        copy = pathlib.Path(folder, "current")
        shutil.copy(path, copy)
        READERS[next(name for name in READERS if name.replace("_", " ") == kind)].read(copy)


def _prepare() -> None:
    """Import what the workers need, so that a fork starts at once."""
    prepare()
    import compiler.mxnet.symbol  # noqa: F401


def guided(kind: str, seconds: float, findings: pathlib.Path, seed: int) -> None:
    """Let atheris look for files that reach new lines of Baton's; ends the process."""
    try:
        import atheris
    except ImportError as error:
        raise SystemExit(
            "--guided needs atheris, which has wheels for CPython 3.11 to 3.13 on Linux: "
            "pip install 'baton-tvm[fuzz]'"
        ) from error
    with atheris.instrument_imports(include=["compiler"], enable_loader_override=False):
        _prepare()
        import compiler.mxnet.array.safetensors
        import compiler.relay.text.parser
        import compiler.runtime.load  # noqa: F401
    from compiler.errors import BatonError

    reader, folder = READERS[kind], pathlib.Path(tempfile.mkdtemp(prefix="fuzz-"))
    seeds, corpus = list(reader.seeds()), folder / "corpus"
    corpus.mkdir()
    for number, data in enumerate(seeds):
        (corpus / str(number)).write_bytes(data)

    def damaged(data: bytes, size: int, number: int) -> bytes:
        rng = random.Random(number)
        try:
            return reader.damage(data, rng)[:size]
        except Exception:  # what was damaged before has no such structure any more
            return atheris.Mutate(data, size)

    def one(data: bytes) -> None:
        path = folder / "current"
        path.write_bytes(data)
        with contextlib.suppress(BatonError):
            reader.read(path)

    findings.mkdir(parents=True, exist_ok=True)
    prefix = findings / f"{kind.replace(' ', '_')}-guided-"
    options = [
        *(f"-max_total_time={seconds:.0f}", f"-seed={seed + 1}", f"-artifact_prefix={prefix}"),
        *("-rss_limit_mb=6000", "-timeout=60", "-max_len=100000", "-print_final_stats=1"),
    ]
    atheris.Setup(["fuzz", *options, str(corpus)], one, custom_mutator=damaged)
    atheris.Fuzz()


def main() -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="of the run")
    parser.add_argument("--first", type=int, default=0, help="number of each kind's first file")
    parser.add_argument("--count", type=int, help="how many files in all")
    parser.add_argument("--seconds", type=float, help="for how long")
    parser.add_argument("--kinds", nargs="*", choices=READERS, default=list(READERS))
    parser.add_argument("--limit", type=float, default=60, help="seconds until a file hangs")
    parser.add_argument("--findings", type=pathlib.Path, default=pathlib.Path("build/fuzz/files"))
    parser.add_argument("--guided", choices=READERS, help="let coverage guide the damage")
    parser.add_argument("--again", type=pathlib.Path, help="a file of the findings")
    args = parser.parse_args()
    if args.again:
        again(args.again)
        return 0
    if args.count is None and args.seconds is None:
        args.seconds = 600.0
    if args.guided:
        guided(args.guided, args.seconds or 600.0, args.findings, args.seed)
    tallies = run(
        args.kinds, args.findings, seed=args.seed, first=args.first, count=args.count,
        seconds=args.seconds, limit=args.limit,
    )  # fmt: skip
    return 1 if any(tally.causes for tally in tallies.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
