"""Settings of the whole suite."""

import os

# Triton reads this once, when it is first imported: the kernels then run without a GPU.
os.environ.setdefault("TRITON_INTERPRET", "1")

from hypothesis import HealthCheck, settings

# Nothing is timed: other work on the machine must not fail a test.
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", UNTIMED, derandomize=True, max_examples=100)
settings.register_profile("long", UNTIMED, max_examples=5_000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
