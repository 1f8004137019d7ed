"""The report about two models: positions from files or models, their means, and the page.

Recorded drafts and formulas are in `otm.gain`, the command is in `otm.cli.report`, and the answers
of an audited server are in `otm.audit.streams.server.answers`.
"""
