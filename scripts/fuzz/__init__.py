"""Random ONNX models against onnxruntime; `scripts/fuzz/run_models.py` is the program.

draft, operators_*   how a valid graph is drawn, operator by operator
generator, values    a whole case: a model and several sets of inputs
evaluate             onnxruntime and ONNX's reference evaluator, of graphs and node by node
attempt              one case built and run by Baton
judge, known         what counts as agreement, and where onnxruntime is wrong
pool                 worker processes that may crash and hang
minimize, report     a failing case made small, and written down as a test
"""
