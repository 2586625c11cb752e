"""Tables of the docs that are generated from the code."""
