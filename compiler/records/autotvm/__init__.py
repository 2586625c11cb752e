"""Records of AutoTVM, and the contexts that apply them."""
