"""Sweeps that other tools ran, read from their files: nothing is executed, no pickle is opened."""
