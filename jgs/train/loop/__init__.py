"""The training loop of the command, with its run folder, checkpoints and log."""
