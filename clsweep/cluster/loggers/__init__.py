"""Trials as runs of TensorBoard, W&B and MLflow, written by processes that no study waits for."""
