"""A search method, its space and its scheduler that go together."""

from __future__ import annotations

from clsweep.catalog import METRIC, METRICS
from clsweep.study.check_base import CheckBase
from clsweep.study.document import Keys
from clsweep.study.schema import FIRST_SEEDS, LIVE_METHODS
from clsweep.study.space import Objective


class SearchChecks(CheckBase):
    def check_evaluation(self) -> None:
        """A search that learns from its scores would choose by the test images, and its best score
        would be no test score any more.
        """
        method, scheduler = self.sections.search.method, self.sections.scheduler.name
        for keys, chooses in (
            (("search", "method"), method if method in LIVE_METHODS else ""),
            (("scheduler", "name"), scheduler if scheduler != "fifo" else ""),
        ):
            if chooses and self.sections.evaluation.score_on == "test":
                self.error(
                    keys,
                    f"{chooses} would choose configurations by the test split. Expected grid, qmc "
                    "or random with fifo, or no evaluation: {score_on: test}",
                )

    def _check_search(self, objective: Objective) -> None:
        search = self.sections.search
        for name, dimension in objective.space.items():
            keys = self._where(objective, name)
            if search.method == "grid" and not dimension.points:
                self.error(
                    keys, "search.method is grid: expected grid or choices, given only low and high"
                )
            if search.method != "grid" and not dimension.choices and not dimension.is_range:
                self.error(
                    keys, f"search.method is {search.method}: expected low and high, or choices"
                )
        if search.method != "grid":
            if search.trials_per_objective is None:
                self.error(
                    ("search",),
                    f"method {search.method} needs trials_per_objective, a number of "
                    "configurations",
                )
        elif (
            search.trials_per_objective and objective.num_grid_configs > search.trials_per_objective
        ):
            message = (
                f"the grid of '{objective.name}' has {objective.num_grid_configs} "
                "configurations, more than the "
            )
            message += (
                f"{search.trials_per_objective} allowed; thin the grid, raise this "
                "number, or use method qmc"
            )
            self.error(("search", "trials_per_objective"), message)

    def check_cost(self) -> None:
        """Only a search that chooses can weigh the cost, of trials that ran to their end."""
        search, scheduler = self.sections.search, self.sections.scheduler.name
        if search.cost == "none":
            return
        if search.method not in LIVE_METHODS:
            self.error(
                ("search", "cost"),
                f"{search.method} chooses nothing by scores or costs. Expected none, or "
                f"search.method {' or '.join(LIVE_METHODS)}; clsweep pareto shows the front of any "
                "study",
            )
        elif scheduler != "fifo":
            self.error(
                ("scheduler", "name"),
                f"{scheduler} judges by the metric alone, and search.cost is {search.cost}. "
                "Expected fifo, or search.cost none",
            )

    def check_race(self) -> None:
        """A race leaves out seeds of bad configurations: there must be some to leave out, and no
        sampler that goes by their means.
        """
        method, seeds = self.sections.search.method, self.sections.seeds
        if self.sections.scheduler.name != "racing":
            return
        if method in LIVE_METHODS:
            self.error(
                ("scheduler", "name"),
                f"racing gives configurations unequal numbers of seeds, and {method} goes by their "
                "means. Expected fifo or asha, or search.method grid, qmc or random",
            )
        if len(seeds) <= FIRST_SEEDS:
            self.error(
                ("seeds",),
                f"racing runs {FIRST_SEEDS} seeds of every configuration and skips further ones: "
                f"expected {FIRST_SEEDS + 1} seeds or more, given {len(seeds)}",
            )

    def _check_scheduler(self, objective: Objective) -> None:
        """Successive halving compares scores of the same epochs, before the last, of a search that
        may be biased.
        """
        scheduler, method = self.sections.scheduler, self.sections.search.method
        if scheduler.name != "asha":
            return
        if method not in LIVE_METHODS:
            reason = (
                f"asha stops bad configurations early, and {method} is there to measure how "
                "many of them are bad"
            )
            self.error(
                ("scheduler", "name"),
                f"{reason}. Expected fifo, or search.method {' or '.join(LIVE_METHODS)}",
            )
            return
        metric = METRIC[self.sections.metric.name]
        is_probed = metric.part == "linear_probe" and metric.of == "features"
        if not metric.every_epoch and not (
            is_probed and objective.fixed["linear_every"] == "scored"
        ):
            every_epoch = ", ".join(m.name for m in METRICS if m.every_epoch)
            message = f"asha compares scores before the last epoch, expected {every_epoch}"
            advice = ", or set linear_every: scored" if is_probed else ""
            self.error(
                ("metric", "name"),
                f"{message}; {metric.name} is scored at the last epoch only{advice}",
            )
            return
        if "epochs" in objective.space:
            keys = self._where(objective, "epochs")
            self.error(
                keys,
                "asha compares configurations of equally many epochs: fix epochs in base, or use "
                "fifo",
            )
            return
        epochs = objective.fixed["epochs"]
        eval_every = objective.fixed.get("eval_every", 1)  # none without training, which just runs
        assert isinstance(epochs, int)
        assert isinstance(eval_every, int)
        # the first scored epoch it looks at
        first_met = -(-scheduler.grace_epochs // eval_every) * eval_every
        if 0 < epochs <= first_met:
            scored = f"'{objective.name}' trains {epochs} epochs and is scored every {eval_every}"
            enough = f"expected epochs > {first_met}, or a smaller grace_epochs or eval_every"
            at: Keys = (
                "scheduler",
                "grace_epochs" if "grace_epochs" in scheduler.model_fields_set else "name",
            )
            self.error(at, f"asha would stop no trial: {scored}; {enough}")
