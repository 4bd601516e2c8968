"""What an analysis starts from: the data of results folders and of tables from elsewhere."""
