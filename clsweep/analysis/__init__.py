"""The numbers: robustness, sensitivity and comparison of objectives, from plain trials tables."""
