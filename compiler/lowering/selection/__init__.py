"""Selection of an implementation, a layout and a schedule for every operator."""
