"""Encoders in the results folder: whole files or none."""

import numpy as np
import pytest

from clsweep.errors import RequestError
from clsweep.results.weights import pack_weights, unpack_weights

WEIGHTS = {
    "conv.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "bn.num_batches_tracked": np.array(7),
}
ABOUT = {
    "trial_id": "dcl-0000-s0",
    "encoder": "conv4",
    "width": 8,
    "normalisation": {"mean": [0.5], "std": [0.2]},
}


def test_what_is_packed_is_unpacked():
    column_major = {**WEIGHTS, "conv.weight": np.asfortranarray(WEIGHTS["conv.weight"])}
    weights, about = unpack_weights(pack_weights(column_major, ABOUT), "here")
    assert about == ABOUT
    assert set(weights) == set(WEIGHTS)
    for name, array in WEIGHTS.items():
        assert weights[name].dtype == array.dtype
        np.testing.assert_array_equal(weights[name], array)


@pytest.mark.parametrize("length", [0, 5, 40, -1])
def test_a_damaged_file_is_named(length):
    with pytest.raises(
        RequestError,
        match=r"out/x\.safetensors: expected an encoder of clsweep, found a damaged file",
    ):
        unpack_weights(pack_weights(WEIGHTS, ABOUT)[:length], "out/x.safetensors")


def test_a_file_of_somebody_else_is_refused():
    from safetensors.numpy import save

    with pytest.raises(RequestError, match="expected an encoder of clsweep"):
        unpack_weights(save(WEIGHTS), "x.safetensors")
