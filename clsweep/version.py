"""The version, whichever of the two distributions brought the package."""

VERSION = "0.1.0"
