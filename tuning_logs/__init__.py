"""The place of tuning logs in the package; Baton ships none at present."""
