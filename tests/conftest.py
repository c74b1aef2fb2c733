"""Settings that all tests share."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Time limits per example fail on busy machines and say nothing about behaviour.
settings.register_profile("voicegate", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("voicegate")
