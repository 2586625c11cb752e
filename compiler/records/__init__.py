"""Records of tuning logs, and the dispatch contexts that look them up: what a build reads of logs.

Nothing here imports the build: what measures, tunes or extracts tasks is in `compiler.autotvm` and
`compiler.auto_scheduler`.
"""
