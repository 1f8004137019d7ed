"""vLLM with the verifiers of OTM: a plug-in that is off unless `OTM_VLLM` is set.

vLLM calls `register` in each of its processes, by the entry point `vllm.general_plugins`.

Not here: the kernels that it calls (`otm.kernels`).
"""

from otm.integrations.vllm.plugin import register

__all__ = ["register"]
