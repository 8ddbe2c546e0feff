"""How batches are handed to a loop: items, stages, schedules, and the loader."""
