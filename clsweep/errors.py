"""Errors that are the user's to mend: the command line prints their lines and exits with 2, without a traceback."""

from __future__ import annotations

from collections.abc import Iterable


class UserError(ValueError):
    """A mistake in what the user gave: each line of the message says place, expected, given, nearest alternative."""


class StudyError(UserError):
    """The study file, a preset or a `--set` is wrong."""


class RequestError(UserError):
    """The request cannot be met here: resources, a missing data set, an unusable results folder."""


class BusyError(RequestError):
    """Another run holds the results folder."""


def nearest(word: str, candidates: Iterable[str]) -> str:
    """` Did you mean 'x'?` for the closest candidate, or the empty string."""
    import difflib  # deferred: only a mistake pays for it

    match = difflib.get_close_matches(word, list(candidates), n=1, cutoff=0.6)
    return f" Did you mean '{match[0]}'?" if match else ""
