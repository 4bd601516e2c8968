"""Reports: what the analysis found as one page that works offline, as text and as files."""
