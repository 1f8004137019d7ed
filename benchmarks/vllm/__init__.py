"""vLLM in an environment of its own: its servers audited, the plug-in of OTM measured beside it."""
