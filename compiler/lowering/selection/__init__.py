"""Chooses for every operator an implementation, a layout and a schedule."""
