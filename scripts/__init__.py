"""Developer programs; run as `python -m scripts.FOLDER.PROGRAM` in the root of a checkout."""
