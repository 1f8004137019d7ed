"""The rules in plain torch, batched: the decisions of `otm.kernels.numpy`, on any device.

They never wait for the device.  All that is added up is added as whole numbers, hence the decisions
are those of the definition bit for bit, on every device and in every batch.  With unchecked input
no token lies outside the vocabulary: NaN and rows that do not sum to one give some token.  `host`
has the one exception: on a CPU, long rows of one chain are read one by one by the definition.
"""

from otm._core.optional import require

require("torch", advice="NumPy arrays need nothing more")
