"""Errors that are the user's to mend: the command line prints their lines and exits with 2, without
a traceback.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence


class UserError(ValueError):
    """A mistake in what the user gave: each line of the message says place, expected, given,
    nearest alternative.
    """


class StudyError(UserError):
    """The study file, a preset or a `--set` is wrong."""


class RequestError(UserError):
    """The request cannot be met here: resources, a missing data set, an unusable results folder."""


class BusyError(RequestError):
    """Another run holds the results folder."""


MAX_LINES = 50  # of mistakes that one message lists


def mistake_lines(lines: Sequence[str]) -> str:
    """The first `MAX_LINES`, each once, as a text that says where there may be more."""
    more = (f"These are the first {MAX_LINES} mistakes.",) * (len(lines) >= MAX_LINES)
    return "\n".join(dict.fromkeys((*lines[:MAX_LINES], *more)))


def nearest(
    word: str, candidates: Iterable[str], aliases: Mapping[str, Collection[str]] | None = None
) -> str:
    """` Did you mean 'x'?` for the candidates that `word` is another name of, else the closest one,
    or the empty string.
    """
    import difflib  # deferred: only a mistake pays for it

    known = {name.lower(): name for name in candidates}
    plain = word.lower()
    others = (aliases or {}).get(plain.replace("-", "_"), ())
    match = difflib.get_close_matches(plain, known, n=1, cutoff=0.6)
    return did_you_mean([x for x in others if x in known.values()] or [known[x] for x in match])


def did_you_mean(names: Sequence[str]) -> str:
    """` Did you mean 'x' or 'y'?`, or the empty string."""
    quoted = [f"'{name}'" for name in names]
    return f" Did you mean {' or '.join(quoted)}?" if names else ""


def listed(names: Sequence[str]) -> str:
    """The first five of some names, and how many more there are."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more or "none"


def first_line(error: BaseException) -> str:
    """The message of an error, in a line; its type where it has none."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
