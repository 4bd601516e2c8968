"""How one trial trains; knows torch, and neither Ray nor Optuna."""
