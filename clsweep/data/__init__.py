"""Data sets held in memory, and the random views made of them."""
