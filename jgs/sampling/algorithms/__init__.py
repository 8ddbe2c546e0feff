"""The sampling algorithms."""
