"""Audit an OpenAI-compatible server: requests, answers, evidence, and the report.

Not here: the same test on steps that an engine recorded (`otm.audit.streams.recorded`).

>>> from otm.audit import audit_server
>>> from otm.audit.streams.server.simulated import simulated_server
>>> audit_server("http://simulated", tv=0.2, transport=simulated_server()).verdict
'lossless on everything tried'
"""
