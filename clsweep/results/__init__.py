"""Results: typed Parquet tables, written atomically, readable while the study runs."""
