"""The kit for a first run on a GPU: everything that a machine without network and TVM needs."""
