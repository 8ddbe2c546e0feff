"""The batches of ranks: how each draws, plans and reads its own, in step with the others."""
