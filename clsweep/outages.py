"""Errors of an object store in a user's words, and outages that are waited for."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa

from clsweep.errors import first_line

T = TypeVar("T")

# a store that fails for so long is given up; pyarrow itself asks again for 6 s at most
_PATIENCE_S = 120.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 10.0
NOTICE_AFTER_S = 5.0

_CREDENTIALS = (
    "expected credentials with a right to it: a role of the machine, AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY, or a profile in ~/.aws/credentials"
)
_REASONS = {
    "ACCESS_DENIED": f"access is denied; {_CREDENTIALS}",
    "INVALID_ACCESS_KEY_ID": f"the store does not know this access key; {_CREDENTIALS}",
    "INVALID_CLIENT_TOKEN_ID": f"the store does not know this access key; {_CREDENTIALS}",
    "SIGNATURE_DOES_NOT_MATCH": f"the secret key does not fit the access key; {_CREDENTIALS}",
    "NO_SUCH_BUCKET": "there is no such bucket",
    "NETWORK_CONNECTION": "the store cannot be reached",
}
_PASSING = {
    "NETWORK_CONNECTION", "SLOW_DOWN", "SERVICE_UNAVAILABLE", "INTERNAL_FAILURE", "THROTTLING",
    "REQUEST_TIMEOUT", "REQUEST_TIME_TOO_SKEWED", "REQUEST_EXPIRED",
    "CONDITIONAL_REQUEST_CONFLICT",  # neither of two writes at once has been let through yet
}  # fmt: skip
_AWS_ERROR = re.compile(
    r"AWS Error (\w+)(?: \(HTTP status (\d+)\))? during \w+ operation: (.*)", re.DOTALL
)
_CURL = re.compile(r"curlCode: \d+, (.*)", re.DOTALL)

_noticed_at = -_PATIENCE_S


def patiently(uri: str, action: Callable[[], T], *, is_needed: bool = True) -> T:
    """The result of an action on a store, tried again with growing pauses while it is down. One
    that is not needed and cannot be reached is not waited for.
    """
    start, pause = time.monotonic(), FIRST_PAUSE_S
    while True:
        try:
            return action()
        except (OSError, pa.ArrowException) as error:
            global _noticed_at
            now = time.monotonic()
            passes = _is_passing(error) if is_needed else is_out_of_order(error)
            if not passes or now - start + pause > _PATIENCE_S:
                raise
            # said once, by whichever thread notices first that the store makes everybody wait
            if now - start > NOTICE_AFTER_S and now - _noticed_at >= _PATIENCE_S:
                _noticed_at = now
                again = f"trying again for up to {_PATIENCE_S:.0f} s"
                print(f"{uri}: {reason(error)}; {again}", file=sys.stderr, flush=True)
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_S)


def _is_passing(error: Exception) -> bool:
    """The error may pass in a while."""
    match = _AWS_ERROR.search(str(error))
    if match is None:
        return False  # the clients of the other stores have asked again themselves
    code, status, _ = match.groups()
    return code in _PASSING or status == "429" or (status or "").startswith("5")


def is_out_of_order(error: Exception) -> bool:
    """The store is there, and answers that it will do so later."""
    return _is_passing(error) and "NETWORK_CONNECTION" not in str(error)


def reason(error: Exception) -> str:
    """The error in a user's words."""
    match = _AWS_ERROR.search(str(error))
    if match is None:
        return first_line(error)
    code, status, message = match.groups()
    if code in _REASONS:
        detail = _CURL.search(message)
        return f"{_REASONS[code]}{f': {detail[1].splitlines()[0]}' if detail else ''}"
    answer = f"HTTP status {status}" if status else code
    return f"the store answers {answer}: {message.splitlines()[0]}"
