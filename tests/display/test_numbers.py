"""One module makes texts of numbers: settings exactly, columns so that nothing is rounded away."""

import itertools
import math
import random
import struct

import numpy as np
import pytest

from clsweep.display.numbers import (
    byte_size,
    count,
    duration,
    fixed,
    mentioned,
    setting,
    setting_column,
)

CLOSE = [0.1, 0.2, 0.3, 0.1 + 0.2, 1 - 2**-53, 1.0, 1 + 2**-52, 0.996, 0.999, 1e20, 1e20 + 2**14]
TYPED = [0.996, 0.999, 3e-4, 1e-05, 0.5, 65536.0, 1e20, 0.123456, -0.25]


def any_float(rng):
    """A finite float of any size, each pattern of bits as likely."""
    while True:
        value = struct.unpack("d", rng.randbytes(8))[0]
        if math.isfinite(value):
            return value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.int64(65536), "65536"),
        (100000.0, "100000"),
        (2**32, "4294967296"),
        (1e9, "1e9"),
        (1e20, "1e20"),
        (-1.5e20, "-1.5e20"),
        (2**53 + 1, "9007199254740993"),
        (1e-4, "0.0001"),
        (1e-05, "1e-05"),
        (-2.5e-7, "-2.5e-07"),
        (0.1 + 0.2, "0.30000000000000004"),
        (np.float32(0.1), "0.1"),
        (-0.0, "0"),
        (True, "true"),
        (np.False_, "false"),
        ("True", "True"),
        (None, ""),
        (np.float64("nan"), ""),
        (-math.inf, "-inf"),
    ],
)
def test_a_setting(value, text):
    assert setting(value) == text


def test_a_setting_is_read_back_as_the_same_number_and_a_whole_one_is_the_same_as_a_float():
    rng = random.Random(0)
    values = [
        *CLOSE,
        *(any_float(rng) for _ in range(3000)),
        *(round(rng.uniform(0, 10), rng.randrange(7)) for _ in range(1000)),
        *(float(rng.randrange(10**10)) for _ in range(1000)),
        *(10.0**power for power in range(-320, 309)),
    ]
    for value in values:
        assert float(setting(value)) == value
    for value in (rng.randrange(-(10**18), 10**18) for _ in range(1000)):
        assert int(setting(value)) == value
    for value in [0, 1, 10, 65536, 10**9, *(rng.randrange(2**53) for _ in range(1000))]:
        assert setting(value) == setting(float(value)) == setting(np.int64(value))


def test_typed_values_are_exact_in_every_column():
    drawn = [random.Random(4).uniform(0, 1) for _ in range(50)]
    assert setting_column(TYPED + drawn)[: len(TYPED)] == [setting(value) for value in TYPED]
    assert [mentioned(value) for value in TYPED] == [setting(value) for value in TYPED]


def test_drawn_values_keep_as_many_digits_as_tell_them_apart():
    assert setting_column([0.123456789, 0.2345678901]) == ["0.1235", "0.2346"]
    assert setting_column([0.123456789, 0.123466789]) == ["0.12346", "0.12347"]
    assert setting_column([0.1235, 0.123500001]) == ["0.1235", "0.123500001"]
    assert setting_column([1234.56789, 0.123456789]) == ["1235", "0.1235"]
    assert mentioned(1.23456789e-5) == "1.235e-05"
    mixed = [0.996, None, math.nan, "auto", True]
    assert setting_column(mixed) == ["0.996", "", "", "auto", "true"]
    assert setting_column([]) == []


@pytest.mark.parametrize("seed", range(3))
def test_different_values_of_a_column_have_different_texts(seed):
    rng = random.Random(seed)
    some = [rng.choice([any_float(rng), rng.random(), round(rng.random(), 3)]) for _ in range(200)]
    values = some + [math.nextafter(value, math.inf) for value in some[::7]] + some[:5]
    texts = setting_column(values)
    for (a, one), (b, other) in itertools.combinations(zip(values, texts, strict=True), 2):
        assert (a == b) == (one == other)


def test_amounts_with_units():
    assert [duration(seconds) for seconds in (45, 180, 7500)] == ["45 s", "3 min", "2 h 05 min"]
    sizes = [byte_size(size) for size in (5, 3000, 340 * 2**20, 20 * 2**30, 2**50)]
    assert sizes == ["5 B", "2.9 KiB", "340 MiB", "20 GiB", "1,000,000 GiB"]
    assert [count(value) for value in (7, 1234, 5300.4)] == ["7", "1,234", "5,300"]
    assert [fixed(value) for value in (91.256, 0.004, 0.0)] == ["91.26", "4.0e-03", "0.00"]
