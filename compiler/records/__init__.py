"""Records of tuning logs, and the dispatch contexts that look them up for a build.

Measuring, tuning and task extraction are in `compiler.autotvm` and `compiler.auto_scheduler`.
"""
