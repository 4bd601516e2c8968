"""The width of the features of encoders; a script, as libraries of encoders are slow to import."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import torch

from clsweep.catalog import COMPONENT, implementation
from clsweep.catalog.open_encoders import NO_PATCHES
from clsweep.errors import first_line
from clsweep.model.external_encoders import mapped, on_meta, take_channels
from clsweep.model.initial_weights import fitting
from clsweep.model.patch_projection import patch_projection


def measure(config: Mapping[str, Any]) -> dict[str, Any]:
    """{"num_features": D}, or {"error": one line}; builds on the meta device, without values."""
    row = COMPONENT["encoder"][config["encoder"]]
    try:
        given = {name: config[name] for name in (*row.owns, *row.takes)}
        network = on_meta(lambda: implementation(row)(**given))
        with torch.device("meta"):
            if "channels" not in row.takes:
                take_channels(network, config["channels"])
        if config.get("init", "none") != "none":
            fitting(network, config["init"])
        if config.get("freeze_patch_embed") and patch_projection(network) is None:
            raise ValueError(f"{config['encoder']}: {NO_PATCHES}")
        if size := config.get("small_view_size"):
            name, channels = config["encoder"], config["channels"]
            mapped(network, name, size, channels, of_views="small_view_size")
    except Exception as error:  # libraries raise anything at names and sizes
        return {"error": first_line(error)}
    return {"num_features": network.num_features}


if __name__ == "__main__":
    answer, sys.stdout = sys.stdout, sys.stderr  # what libraries print is no answer
    print(json.dumps([measure(each) for each in json.load(sys.stdin)]), file=answer)
