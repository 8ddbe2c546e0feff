"""Files: folders of arrays, atomic replacement, locks."""
