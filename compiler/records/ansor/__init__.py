"""Records of TVM's old auto_scheduler, Ansor (TVM 0.7 to 0.19): read, matched and replayed."""
