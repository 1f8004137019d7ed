"""Settings of the whole suite."""

import os

# Triton reads this once, when it is first imported: the kernels then run without a GPU.
os.environ.setdefault("TRITON_INTERPRET", "1")

from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None, max_examples=100)
settings.register_profile("long", deadline=None, max_examples=5_000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
