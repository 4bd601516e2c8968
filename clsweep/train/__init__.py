"""How one trial trains; knows torch, and neither Ray nor Optuna."""

import os
import re
import subprocess
import sys

from clsweep.errors import RequestError

# what torch reads when it is loaded, and does not load with where it is malformed
_OF_TORCH = ("TORCH_LOGS", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


def require_torch() -> None:
    """RequestError where the environment has settings with which torch cannot be loaded: each trial
    would lose its process.
    """
    given = [f"{n}={v}" for n, v in os.environ.items() if n in _OF_TORCH]
    if given:
        call = [sys.executable, "-P", "-c", "import torch"]
        done = subprocess.run(call, capture_output=True, text=True, errors="replace")
        if done.returncode:
            told = re.search(r"(?:what\(\)|Error):\s*(.+)", done.stderr)
            reason = told[1] if told else f"exit code {done.returncode}"
            expected = "expected settings with which torch can be loaded, given"
            raise RequestError(f"{', '.join(given)}: {expected}: {reason:.200}")
