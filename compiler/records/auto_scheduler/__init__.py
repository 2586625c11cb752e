"""Records of auto_scheduler, and the contexts that apply them."""
