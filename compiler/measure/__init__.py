"""Building and running of candidate kernels, each in a worker process.

AutoTVM and auto_scheduler measure through this package: a `Candidate` lowers its kernel,
a builder turns it into a library, a runner times that and checks its numbers. Whatever a
candidate does to its process ends up as a `MeasureErrorNo`, and the next one is measured.
"""
