"""What builds keep on disk: kernels and whole libraries."""
