"""The main job: `python -m jgs.train`, and the pieces it is made of."""
