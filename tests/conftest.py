"""What every test run shares."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A busy machine is slow, not wrong: no example is judged by its time.
settings.register_profile(
    "project",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("project")
