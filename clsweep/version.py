"""The version, whichever of the two distributions brought the package."""

VERSION = "0.1.0"
VERSION_COLUMNS = ("clsweep_version", "torch_version")  # of trials: what scores depend on


def public_version(version: str) -> str:
    """`2.9.1` of `2.9.1+cu128`: builds of one version train alike."""
    return version.partition("+")[0]
