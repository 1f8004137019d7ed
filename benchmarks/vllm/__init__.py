"""vLLM in a separate environment: audits of its servers, and measurements of OTM's plug-in."""
