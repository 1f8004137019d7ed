"""Audit an OpenAI-compatible server: settings, requests, answers, and the report.

`distributions` has the distributions of tokens, `evidence` the test and the mistakes that it names,
`checks` the results beside the verdict, and `simulated` servers for examples and tests.

Not here: the same test on steps that an engine recorded (`otm.audit.streams.recorded`).

>>> from otm.audit import audit_server
>>> from otm.audit.streams.server.simulated import simulated_server
>>> audit_server("http://simulated", tv=0.2, transport=simulated_server()).verdict
'lossless on everything tried'
"""
