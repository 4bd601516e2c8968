"""The error at the root of Ray's wrappers, and its text for the table."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator

from clsweep.catalog.rows import Row

MOST_TEXT = 8 * 1024  # bytes of an error's text that are kept


def describe(error: BaseException) -> Row:
    """Class, message and traceback of the error at the root of Ray's wrappers."""
    root = root_cause(error)
    name, place = _cut(type(root).__name__, 200), getattr(root, "plugin_place", "")
    # Ray's own texts hold process ids and advice on Ray; equal failures shall have equal messages.
    message = (_of_ray(root) and _LOST.get(name)) or message_of(root).strip() or name
    message = f"{place}: {name}: {message}" if place else message
    trace = _cut("".join(traceback.format_exception(root)), MOST_TEXT, end=MOST_TEXT // 2)
    return {
        "error_class": name,
        "error_message": _cut(message, MOST_TEXT),
        "error_traceback": trace,
    }


def message_of(error: BaseException) -> str:
    """The message of an error; nothing where it fails at that, as one of a user's class may."""
    try:
        return str(error)
    except Exception:
        return ""


def _cut(text: str, most: int, *, end: int = 0) -> str:
    """At most about so many bytes of UTF-8 of a text, `end` of them its last ones: it goes through
    Ray, into a table, and onto screens.
    """
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= most:
        return data.decode()
    head, tail = (
        part.decode("utf-8", "ignore") for part in (data[: most - end], data[len(data) - end :])
    )
    return f"{head} ... {len(data) - most:,} bytes cut ... {tail}"


def _of_ray(error: BaseException) -> bool:
    return type(error).__module__.startswith("ray.")  # torch has an OutOfMemoryError too


_DIED = "the trial's process died: killed from outside, out of memory, or crashed"
_LOST = {
    "ActorDiedError": _DIED,
    "ActorUnavailableError": _DIED,
    "WorkerCrashedError": _DIED,
    "WorkerHealthCheckFailedError": _DIED,
    "NodeDiedError": "the node of the trial died",
    "OutOfMemoryError": "the node ran out of memory; Ray stopped the trial",
}
# What torch says in the other workers of a group when one of them is gone.
_CUT_OFF = re.compile(
    "connection|broken pipe|timed out|timeout|remote process|peer|shut ?down|aborted|system error",
    re.IGNORECASE,
)
_OF_THE_GROUP = re.compile("gloo|nccl|c10d|distributed|tcpstore", re.IGNORECASE)


def is_lost(error: BaseException) -> bool:
    """True if a process or a machine was lost, rather than that the trial itself went wrong."""
    root = root_cause(error)
    return _of_ray(root) or _is_cut_off(root)


def _is_cut_off(error: BaseException) -> bool:
    text = message_of(error)
    return _may_be_torch_s(error) and bool(_OF_THE_GROUP.search(text) and _CUT_OFF.search(text))


def _may_be_torch_s(error: BaseException) -> bool:
    """True if torch's messages between workers raise such errors; a trial's have other classes."""
    name = type(error).__name__
    return (
        type(error) is RuntimeError or isinstance(error, ConnectionError) or name.startswith("Dist")
    )


def root_cause(error: BaseException) -> BaseException:
    """The error at the root of Ray's wrappers, whose messages repeat tracebacks.

    Of several workers that failed, the one with an error of its own. Where one of them died, the
    others only miss it, in whatever words.
    """
    errors = list(causes(error))
    has_died = any(map(_of_ray, errors))
    return min(
        errors,
        key=lambda cause: (has_died and _may_be_torch_s(cause), _is_cut_off(cause), _of_ray(cause)),
    )


def causes(error: BaseException, depth: int = 10) -> Iterator[BaseException]:
    """The errors that an error of Ray wraps."""
    failures = getattr(error, "worker_failures", None) or {}
    names = ("_base_exc", "cause", "health_check_failure", "controller_failure")
    inner = list(failures.values()) or [getattr(error, name, None) for name in names]
    wrapped = [cause for cause in inner if isinstance(cause, BaseException) and cause is not error]
    if not wrapped or not depth:
        yield error
        return
    for cause in wrapped if failures else wrapped[:1]:
        yield from causes(cause, depth - 1)
