"""Settings that all tests share."""

from __future__ import annotations

import os

# Two threads of torch in each of several processes wait for one another more than they compute. Set before it loads.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from hypothesis import HealthCheck, settings

# Time limits per example fail on busy machines and say nothing about behaviour.
settings.register_profile("voicegate", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("voicegate")
