"""Asks the server of examples/serve: PORT CASES.npz. Prints the largest relative error."""

import socket
import sys

import numpy as np

with np.load(sys.argv[2]) as cases:
    inputs, outputs = cases["inputs"], cases["outputs"]
worst = 0.0
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=300) as server:
    for case, expected in zip(inputs, outputs):
        server.sendall(case.tobytes())
        answer = b""
        while len(answer) < expected.nbytes:
            piece = server.recv(expected.nbytes - len(answer))
            if not piece:
                raise SystemExit("the server closed the connection")
            answer += piece
        found = np.frombuffer(answer, expected.dtype).reshape(expected.shape)
        worst = max(worst, float(np.abs(found - expected).max()))
print(worst / np.abs(outputs).max())
