"""Layouts of the files of a data set of the user's own, and their images."""
