"""The data of an analysis: from results folders, tables and other tools' sweeps."""
