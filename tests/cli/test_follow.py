"""A report that is written again while its study runs."""

from types import SimpleNamespace

import pytest

from clsweep.cli.status import FOLLOW_PAUSE_S, followed


class Watched:
    """A study as it is seen, look after look, and the clock meanwhile."""

    def __init__(self, looks, work_s=0.0):
        self._looks, self._work_s = iter(looks), work_s
        self.now, self.waited = 0.0, []

    def is_running(self):
        self._is_running, self._ended, self._epochs = next(self._looks)
        return self._is_running

    def read(self):
        table = SimpleNamespace(num_rows=self._epochs)
        studies = [SimpleNamespace(tables=SimpleNamespace(epochs_table=table))]
        return SimpleNamespace(trials=[0] * self._ended, studies=studies)

    def written(self):
        for results in followed(
            self.is_running, self.read, wait=self.waited.append, clock=lambda: self.now
        ):
            yield len(results.trials), results.studies[0].tables.epochs_table.num_rows
            self.now += self._work_s


def test_it_is_written_whenever_more_is_known_and_once_the_run_has_ended():
    looks = [(True, 0, 0), (True, 0, 3), (True, 1, 3), (True, 1, 3), (True, 1, 5), (False, 4, 0)]
    assert [*Watched(looks).written()] == [(1, 3), (1, 5), (4, 0)]


def test_a_run_that_ends_without_news_is_written_once_more():
    assert [*Watched([(True, 2, 0), (False, 2, 0)]).written()] == [(2, 0)] * 2
    assert [*Watched([(False, 0, 0)]).written()] == [(0, 0)], "its own words say why that is not"


def test_the_pause_grows_with_the_work():
    looks = [(True, 1, 0), *[(True, 2, 0)] * 100, (False, 3, 0)]
    small, large = (Watched(looks, work_s) for work_s in (0.1, 61.0))
    waited = []
    for each in (small, large):
        written = each.written()
        assert [next(written), next(written)] == [(1, 0), (2, 0)]
        waited.append(list(each.waited))
    assert waited[0] == [FOLLOW_PAUSE_S]
    assert sum(waited[1]) == pytest.approx(244.0)
    assert max(waited[1]) == FOLLOW_PAUSE_S


def test_the_end_of_a_run_ends_a_long_pause():
    watched = Watched([(True, 1, 0), (True, 1, 0), (True, 2, 0), (False, 3, 0)], 60.0)
    assert [*watched.written()] == [(1, 0), (3, 0)]
    assert watched.waited == [FOLLOW_PAUSE_S] * 3
