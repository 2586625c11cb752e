"""Records of TVM's auto_scheduler (Ansor, TVM 0.7 to 0.19): reading, matching and replaying them."""
