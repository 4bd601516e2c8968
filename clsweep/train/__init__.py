"""Training of one trial; knows torch, and neither Ray nor Optuna."""
