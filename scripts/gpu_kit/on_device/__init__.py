"""Programs of the kit for the machine with the GPU; all but one stage need no compiler."""
