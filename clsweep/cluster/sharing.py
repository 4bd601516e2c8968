"""Several studies on one cluster: what part of it each may hold, from what all of them could
use.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Collection, Sequence

from clsweep.cluster.driver_actor import NAMESPACE, PREFIX, Claim, ask

POLL_S = 1.0
ANSWER_S = 2.0  # a study that does not say what it could use for so long could use all
# trials start within that; a study that has waited longer waits for what the others hold
PATIENCE_S = 60.0


class Share:
    """How many trials this run may have at once: `limit` follows the studies that come and go.

    `yields` asks for the end of the last trial's process too: with fewer places than studies, they
    take turns.

    Args:
        desk: of this run; None: nobody shares the cluster.
        capacity: trials of this run that the whole cluster holds.
        most: trials that the user lets run at once.
    """

    def __init__(self, desk: str | None, capacity: int, most: int):
        self._desk, self._capacity, self._most = desk, capacity, most
        self._idle_since = time.monotonic()
        self.num_open = 0  # trials that run or wait; who hands them out says it
        self.limit = capacity
        self.yields = False

    def update(self, running: Collection[str]) -> None:
        """Say what this run could use, and see what the others leave of it.

        Args:
            running: ids of the trials that have been started.
        """
        if self._desk is None:
            return
        now = time.monotonic()
        if running and ask(self._desk, "has_begun", list(running)):
            self._idle_since = now
        mine = Claim(min(self.num_open, self._most) / self._capacity, now - self._idle_since)
        others = [claim for claim in self._others(mine) if claim.part]
        self._follow(mine, others, holds_any=now == self._idle_since)

    def _follow(self, mine: Claim, others: Sequence[Claim], *, holds_any: bool) -> None:
        exact = fair_part(mine.part, [claim.part for claim in others]) * self._capacity
        is_awaited = any(map(_is_awaited, others))
        # Places that do not divide are for whoever comes first, until somebody has none.
        self.limit = max(1, math.floor(exact + 1e-9) if is_awaited else math.ceil(exact - 1e-9))
        has_too_few = len(others) + 1 > self._capacity
        self.yields = is_awaited and has_too_few and (self.yields or holds_any)

    def begin_turn(self, num_open: int) -> None:
        """Before a turn with so many trials left: behind the studies that have waited longer."""
        if self.yields:
            self._let_others_begin()
        self.yields, self._idle_since, self.num_open = False, time.monotonic(), num_open
        self.update([])

    def _let_others_begin(self) -> None:
        """Return when nobody is awaited any more: of two requests Ray may well serve the later one
        first.
        """
        deadline = time.monotonic() + 2 * PATIENCE_S
        while time.monotonic() < deadline and any(map(_is_awaited, self._others(Claim(0.0)))):
            time.sleep(POLL_S)

    def _others(self, mine: Claim) -> list[Claim]:
        """The claims of the other runs of the cluster, while telling them the one of this run."""
        import ray

        answers = []
        for actor in ray.util.list_named_actors(all_namespaces=True):
            if actor["namespace"] != NAMESPACE or not actor["name"].startswith(PREFIX):
                continue
            with contextlib.suppress(ValueError):  # a run that ended since it was listed
                desk = ray.get_actor(actor["name"], namespace=NAMESPACE)
                if actor["name"] == self._desk:
                    desk.make_claim.remote(mine)
                else:
                    answers.append(desk.claim.remote())
        ready, late = (
            ray.wait(answers, num_returns=len(answers), timeout=ANSWER_S) if answers else ([], [])
        )
        claims = [Claim()] * len(late)
        for answer in ready:
            with contextlib.suppress(ray.exceptions.RayError):  # or that ended since it was asked
                claims.append(ray.get(answer))
        return claims


def _is_awaited(claim: Claim) -> bool:
    return claim.part > 0 and claim.waiting_s > PATIENCE_S


def fair_part(mine: float, others: Sequence[float]) -> float:
    """The max-min fair part of a whole of 1: what a small claim leaves is shared by the larger ones
    equally.
    """
    left, claims = 1.0, sorted([mine, *others])
    for number, claim in enumerate(claims):
        equal = left / (len(claims) - number)
        if claim > equal:
            return min(mine, equal)
        left -= claim
    return mine
