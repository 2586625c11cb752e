"""Writes inputs for a model and what onnxruntime makes of them: MODEL CASES.npz."""

import sys

import numpy as np
import onnxruntime

COUNT = 8

session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
(given,), (made,) = session.get_inputs(), session.get_outputs()
rng = np.random.default_rng(0)
cases = rng.standard_normal((COUNT, *given.shape)).astype("float32")
results = [session.run([made.name], {given.name: case})[0] for case in cases]
np.savez(sys.argv[2], inputs=cases, outputs=np.stack(results))
