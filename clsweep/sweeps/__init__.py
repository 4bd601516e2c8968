"""What an analysis starts from: the material of results folders and of tables from elsewhere."""
