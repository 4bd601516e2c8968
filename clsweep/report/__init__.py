"""Reports: what the analysis found as one page that works offline, as text, as figures and as
tables.
"""
