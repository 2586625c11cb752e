"""Runs a library as deployed programs do, by three interfaces: LIBRARY CASES.npz [fork].

Prints the largest error relative to the results' largest magnitude; with "fork", of children of
this process, after it has run kernels.
"""

import multiprocessing
import os
import sys

import numpy as np

from compiler import ort
from compiler.runtime import graph_executor, load_module

import tvm  # isort: skip  (the part of it that comes with the runtime)

path = sys.argv[1]
with np.load(sys.argv[2]) as cases:
    inputs, outputs = cases["inputs"], cases["outputs"]
largest = np.abs(outputs).max()
library = load_module(path)
(given,), (made,) = library.metadata.inputs, library.metadata.outputs
module = graph_executor.GraphModule(library["default"](tvm.cpu(0)))
session = library.session(num_threads=2)
theirs = ort.InferenceSession(path)


def by_graph_module(case):
    module.set_input(given.name, case)
    module.run()
    return module.get_output(0).numpy()


def by_session(case):
    return session.run({given.name: case})[made.name]


def by_ort(case):
    return theirs.run([made.name], {given.name: case})[0]


def error(run):
    found = [run(case) for case in inputs]
    return max(np.abs(one - other).max() for one, other in zip(found, outputs)) / largest


def error_in_a_fork(run):
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = os.fork()
    if child == 0:
        sender.send(float(error(run)))
        os._exit(0)
    if not receiver.poll(60):
        raise SystemExit("the child gave no answer within 60 s")
    _, status = os.waitpid(child, 0)
    if status:
        raise SystemExit(f"the child ended with the status {status}")
    return receiver.recv()


runs = (by_graph_module, by_session, by_ort)
errors = [error(run) for run in runs]
if sys.argv[3:] == ["fork"]:
    errors = [error_in_a_fork(run) for run in runs]
print(max(errors))
