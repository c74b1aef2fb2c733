"""Settings that all tests share."""

from __future__ import annotations

import os
import sys

# Two threads of torch in each of several processes wait for one another more than they compute. Set before it loads.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import HealthCheck, settings

# Time limits per example fail on busy machines and say nothing about behaviour.
settings.register_profile("voicegate", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("voicegate")


@pytest.fixture(autouse=True)
def _no_unloaded_redirects() -> None:
    """Take out of ``sys.modules`` what SpeechBrain put there for old import paths.

    Hypothesis looks at every loaded module; a look at one of these imports an optional package that is not installed.
    """
    for name, module in list(sys.modules.items()):
        if type(module).__name__ == "DeprecatedModuleRedirect":
            del sys.modules[name]
