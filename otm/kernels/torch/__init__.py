"""The rules in plain torch, batched: the decisions of `otm.kernels.numpy`, on any device.

They never wait for the device.  All that is added up is added as whole numbers, hence the decisions
are those of the definition bit for bit, on every device and in every batch.  With unchecked input
no token lies outside the vocabulary: NaN and rows that do not sum to one give some token.
"""

from otm.errors import MissingDependencyError

try:
    import torch  # noqa: F401  # absolute: the library
except ImportError as error:
    raise MissingDependencyError(
        'torch is not installed; to verify on tensors: pip install "otm[torch]" (NumPy arrays need '
        "nothing more)"
    ) from error
