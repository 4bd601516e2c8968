"""Sizes and crops of views that fit the images and each other."""

from __future__ import annotations

from clsweep.catalog.ownership import HALF_TURN, num_crop_only
from clsweep.display.numbers import setting
from clsweep.study.check_base import CheckBase
from clsweep.study.space import Objective


class ViewChecks(CheckBase):
    def _check_crops(self, objective: Objective) -> None:
        _, lowest = objective.extremes("crop_scale")
        highest, _ = objective.extremes("crop_max")
        if lowest > highest:
            message = f"expected at most crop_max, {setting(highest)}, given {setting(lowest)}"
            self.error(self._where(objective, "crop_scale"), message)

    def _check_hue(self, objective: Objective) -> None:
        if "jitter_hue" not in objective.owned:
            return
        _, strongest = objective.extremes("jitter_strength")
        _, furthest = objective.extremes("jitter_hue")
        if strongest * furthest > HALF_TURN:
            message = (
                f"expected at most half a turn, 0.5, of jitter_strength x jitter_hue, given "
                f"{setting(strongest)} x {setting(furthest)}"
            )
            self.error(self._where(objective, "jitter_hue"), message)

    def _check_small_views(self, objective: Objective) -> None:
        if "small_view_size" not in objective.owned:
            return
        self._check_global_views(objective)
        _, size = objective.extremes("small_view_size")
        large, _ = objective.extremes("view_size")
        large = large or self.dataset.image_size
        if size > large:
            expected = f"expected at most {large}, the side of the other views"
            self.error(self._where(objective, "small_view_size"), f"{expected}, given {size}")
        name = "crop_scale" if objective.fixed.get("small_crop_scale") == 0 else "small_crop_scale"
        _, lowest = objective.extremes(name)
        highest, _ = objective.extremes("small_crop_max")
        if lowest > highest:
            message = (
                f"expected at most small_crop_max, {setting(highest)}, given {setting(lowest)}"
            )
            self.error(self._where(objective, name), message)
        if (shares := objective.space.get("crop_only_share")) and "num_views" in objective.fixed:
            num_views = objective.fixed["num_views"]
            assert isinstance(num_views, int)
            counts = [num_crop_only(float(share), num_views) for share in shares.points]
            if len(set(counts)) < len(counts):
                listed = ", ".join(map(str, counts))
                message = (
                    f"expected shares that differ in effect, given {listed} crop-only "
                    f"views of {num_views}"
                )
                self.error(self._where(objective, "crop_only_share"), message)

    def _check_global_views(self, objective: Objective) -> None:
        if "num_global_views" not in objective.owned:
            return
        fewest, most = objective.extremes("num_views")
        fewest_global, most_global = objective.extremes("num_global_views")
        if most_global > fewest:
            message = f"expected at most num_views, {fewest}, given {most_global}"
            self.error(self._where(objective, "num_global_views"), message)
        elif most == fewest_global > 2:
            for name in ("small_view_size", "small_crop_scale", "small_crop_max"):
                if name in objective.space:
                    message = f"has no effect while all {most} views are global"
                    self.error(self._where(objective, name), message)
