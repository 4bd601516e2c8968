"""The documentation: `make docs` builds it. Pages below `reference/` are written from the code."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import generate

project = "clsweep"
author = copyright = "the clsweep developers"
extensions = ["myst_parser"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "results", "gallery/**/report.md"]
html_theme = "furo"
html_title = "clsweep"
# their links point at files of the repository
suppress_warnings = ["myst.xref_missing", "myst.header"]


def setup(app):
    app.connect("builder-inited", lambda app: generate.write(Path(app.srcdir) / "reference"))
