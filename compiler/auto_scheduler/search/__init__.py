"""Schedule search with TVM's MetaSchedule; it measures in worker processes."""
