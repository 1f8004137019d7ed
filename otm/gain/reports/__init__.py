"""The report about two models: it reads positions, computes means over them and writes a page.

Recorded drafts and formulas are in `otm.gain`, the command is in `otm.cli.report`, and the answers
of an audited server are in `otm.audit.streams.server.answers`.
"""
