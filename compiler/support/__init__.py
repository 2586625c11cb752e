"""What every layer uses: files, folders, processes and contexts. Knows nothing of compilers."""
