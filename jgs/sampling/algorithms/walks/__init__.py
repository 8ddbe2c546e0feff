"""Random walks, and samplers that count their visits."""
