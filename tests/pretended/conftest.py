"""The pretended device, one child process for the tests of a file: to import torch takes long."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.pretended.process import Child, compiled


@pytest.fixture(scope="session")
def _environment(tmp_path_factory):
    if not torch.backends.cuda.is_built():
        pytest.skip("this torch is built without CUDA: it has no code of it to run")
    try:
        return compiled(tmp_path_factory.mktemp("driver"))
    except FileNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def device(_environment) -> Iterator[Child]:
    child = Child(_environment)
    yield child
    child.close()
