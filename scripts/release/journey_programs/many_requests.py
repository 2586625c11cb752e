"""Requests from many threads to one session: ENGINE MODEL CASES.npz [THREADS] [REQUESTS].

The engine is baton, which takes a library, or onnxruntime, which takes the ONNX model; each works
on a request with one thread. Every result must be what the same input gave alone, to the bit.
Prints a JSON object: requests, how many were wrong, and how many a second were answered.
"""

import importlib
import json
import sys
import threading
import time

import numpy as np

THREADS, REQUESTS = 4, 10_000

engine, path = sys.argv[1:3]
threads = int(sys.argv[4]) if len(sys.argv) > 4 else THREADS
requests = int(sys.argv[5]) if len(sys.argv) > 5 else REQUESTS
ort = importlib.import_module({"baton": "compiler.ort"}.get(engine, engine))
options = ort.SessionOptions()
options.intra_op_num_threads = 1
session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
(name,) = (entry.name for entry in session.get_inputs())
with np.load(sys.argv[3]) as cases:
    inputs = list(cases["inputs"])
expected = [session.run(None, {name: case})[0] for case in inputs]
wrong = [0] * threads


def ask(thread):
    for request in range(thread, requests, threads):
        case = request % len(inputs)
        (found,) = session.run(None, {name: inputs[case]})
        wrong[thread] += not np.array_equal(found, expected[case])


callers = [threading.Thread(target=ask, args=(index,)) for index in range(threads)]
start = time.perf_counter()
for caller in callers:
    caller.start()
for caller in callers:
    caller.join()
seconds = time.perf_counter() - start
print(json.dumps({"requests": requests, "wrong": sum(wrong), "per_second": requests / seconds}))
