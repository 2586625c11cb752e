"""Searching for schedules: TVM's MetaSchedule, measured in processes of their own, and logged."""
