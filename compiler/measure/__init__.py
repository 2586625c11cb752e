"""Building and running of candidate kernels, each in a worker process.

A `Candidate` lowers its kernel, a builder turns it into a library, and a runner times that and
checks its numbers. Whatever a candidate does to its process becomes a `MeasureErrorNo`.
"""
