"""Types of the arrays that the statistics are made of."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Codes = NDArray[np.int64]  # numbers that stand for values
