"""On-disk caches of builds: kernels, libraries and command results."""
