"""What a run learns: one file a task."""
