"""What notices a lost or hanging rank, and ends the others."""
