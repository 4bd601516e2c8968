"""Errors that are the user's to mend: the command line prints their lines and exits with 2, without a traceback."""

from __future__ import annotations


class UserError(ValueError):
    """A mistake in what the user gave: each line of the message says place, expected, given, nearest alternative."""


class StudyError(UserError):
    """The study file, a preset or a `--set` is wrong."""


class RequestError(UserError):
    """The request cannot be met here: resources, a missing data set, an unusable results folder."""
