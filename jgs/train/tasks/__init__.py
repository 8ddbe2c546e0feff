"""What a run learns: one file a task, with its options, its job, loss and metric."""
