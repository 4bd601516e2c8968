"""The objectives: losses, and the frameworks that feed them."""
