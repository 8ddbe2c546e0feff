"""The runs of `trained` as fixtures."""

from trained import in_parts, whole

__all__ = ["in_parts", "whole"]
