#!/usr/bin/env python3
"""Generates the likeliest tokens behind a prompt: one library, whose cache is updated in place.

    python -m scripts.models.decoders gpt2 gpt2.onnx
    python -m scripts.examples.generate gpt2.onnx --prompt 3,14,15 --tokens 20

The model takes `ids` (1, seq) and past keys and values, whose rows the symbol `past` counts, and
returns `logits` (1, seq, vocabulary) beside the caches.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
import tvm

from compiler import relay
from compiler.runtime.session import Session


def decoder(path: str, room: int) -> Session:
    """A session of a decoder for texts of up to `room` tokens."""
    mod, params = relay.frontend.from_onnx(path)
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(relay.with_kv_cache(mod, "past", room), "llvm", params=params)
    return library.session()


def generate(session: Session, prompt: list[int], count: int) -> Iterator[int]:
    """The likeliest tokens behind a prompt, one after the other."""
    cache = session.make_kv_cache()
    new = prompt
    for _ in range(count):
        ids = np.array([new], "int64")
        logits = session.run({"ids": ids}, kv_cache=cache)["logits"]
        token = int(logits[0, -1].argmax())
        yield token
        new = [token]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", help="an ONNX file")
    parser.add_argument("--prompt", default="1", help="tokens with commas")
    parser.add_argument("--tokens", type=int, default=20, help="to generate")
    args = parser.parse_args()
    prompt = [int(token) for token in args.prompt.split(",")]
    session = decoder(args.model, len(prompt) + args.tokens)
    for token in generate(session, prompt, args.tokens):
        print(token, end=" ", flush=True)
    print()


if __name__ == "__main__":
    main()
