"""The colours of the charts: told apart by everybody, and legible on their page."""

import math

import numpy as np
import pytest

from clsweep.display.theme import DARK, LIGHT, SHAPES

SIGHT = {  # linear RGB as it is seen (Machado, Oliveira and Fernandes 2009)
    "normal": np.eye(3),
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.01182, 0.04294, 0.968881],
    ],
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
}


def linear_of(colours):
    """(n, 3) linear RGB of hexadecimal colours."""
    rgb = np.array([[int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)] for colour in colours])
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


@pytest.mark.parametrize("palette", [LIGHT, DARK])
def test_colours_stay_apart_for_the_colour_blind_and_are_legible_on_their_page(palette):
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    for sight in SIGHT.values():
        linear = linear_of(palette.category) @ np.transpose(sight)
        xyz = np.clip(linear, 0, 1) @ np.transpose(to_xyz) / [0.9505, 1, 1.089]
        x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116).T
        lab = np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=1)
        apart = np.linalg.norm(lab[:, None] - lab[None], axis=2)
        # A just noticeable difference is 2.3.
        assert apart[~np.eye(len(lab), dtype=bool)].min() > 20
    colours = linear_of((palette.page, *palette.category, palette.text, palette.soft))
    page, *others = colours @ [0.2126, 0.7152, 0.0722]
    bright, dim = np.maximum(others, page), np.minimum(others, page)
    assert ((bright + 0.05) / (dim + 0.05)).min() >= 3  # WCAG, for graphics
    assert math.gcd(len(palette.category), len(SHAPES)) == 1
    assert len(LIGHT.category) == len(DARK.category)
