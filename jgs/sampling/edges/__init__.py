"""What samplers draw with: random bits, the edges that may be drawn, and blocks made of
them."""
