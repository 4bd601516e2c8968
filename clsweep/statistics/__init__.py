"""The questions of a reader: each a table, its columns, sentences and figures in one file."""
