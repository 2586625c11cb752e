"""TE computes that several operators share."""
