"""vLLM with the verifiers of OTM: a plug-in that is inactive unless `OTM_VLLM` is set.

vLLM calls `register` in each of its processes, through the entry point `vllm.general_plugins`.
The kernels of the plug-in are in `otm.kernels`.
"""

from otm.integrations.vllm.plugin import register

__all__ = ["register"]
