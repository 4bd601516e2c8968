"""Several studies on one cluster: what part of it each may hold, from what all of them could use."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from clsweep.cluster.desk import NAMESPACE, PREFIX, Claim

ANSWER_S = 2.0  # a study that does not say what it could use for so long could use all
PATIENCE_S = 60.0  # trials start within that; a study that has waited longer waits for what the others hold


class Share:
    """How many trials this run may have at once: `limit` follows the studies that come and go.

    `yields` asks for the end of the last trial's process too: with fewer places than studies, they take turns.

    Args:
        desk: of this run; None: nobody shares the cluster.
        capacity: trials of this run that the whole cluster holds.
    """

    def __init__(self, desk: str | None, capacity: int):
        self._desk, self._capacity = desk, capacity
        self._idle_since = time.monotonic()
        self.limit = capacity
        self.yields = False

    def update(self, *, num_open: int, num_running: int) -> None:
        """Say what this run could use, `num_open` trials that run or wait, and see what the others leave of it."""
        if self._desk is None:
            return
        now = time.monotonic()
        if num_running:
            self._idle_since = now
        mine = Claim(min(1.0, num_open / self._capacity), now - self._idle_since)
        others = self._others(mine)
        part = fair_part(mine.part, [claim.part for claim in others])
        self.limit = max(1, math.ceil(part * self._capacity - 1e-9))
        is_awaited = any(claim.part and claim.waiting_s > PATIENCE_S for claim in others)
        self.yields = is_awaited and self.limit == 1 and (self.yields or num_running > 0)

    def begin_turn(self) -> None:
        """After a turn ended: wait for the next behind the studies that have waited longer."""
        self.yields, self._idle_since = False, time.monotonic()

    def _others(self, mine: Claim) -> list[Claim]:
        """The claims of the other runs of the cluster, while telling them the one of this run."""
        import ray

        desks = {
            actor["name"]: ray.get_actor(actor["name"], namespace=NAMESPACE)
            for actor in ray.util.list_named_actors(all_namespaces=True)
            if actor["namespace"] == NAMESPACE and actor["name"].startswith(PREFIX)
        }
        own = desks.pop(self._desk or "", None)
        if own is not None:
            own.make_claim.remote(mine)
        answers = [desk.claim.remote() for desk in desks.values()]
        ready, late = ray.wait(answers, num_returns=len(answers), timeout=ANSWER_S) if answers else ([], [])
        return [*ray.get(ready), *(Claim() for _ in late)]


def fair_part(mine: float, others: Sequence[float]) -> float:
    """The max-min fair part of a whole of 1: what a small claim leaves is shared by the larger ones equally."""
    left, claims = 1.0, sorted([mine, *others])
    for number, claim in enumerate(claims):
        equal = left / (len(claims) - number)
        if claim > equal:
            return min(mine, equal)
        left -= claim
    return mine
