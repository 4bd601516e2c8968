"""Hyperparameter studies for contrastive and self-supervised learning, distributed on Ray.

`load_study`, `run`, `open_results` and `analyse` are all that a notebook needs. Importing clsweep
imports neither torch nor Ray.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clsweep.api import analyse, open_results, run
    from clsweep.opened_results import Results
    from clsweep.study.resolve import load_study

__all__ = ["Results", "analyse", "load_study", "open_results", "run"]


def __getattr__(name: str) -> Any:
    if name == "load_study":
        from clsweep.study.resolve import load_study

        return load_study
    if name in __all__:
        from clsweep import api

        return getattr(api, name)
    raise AttributeError(f"module 'clsweep' has no attribute {name!r}")
