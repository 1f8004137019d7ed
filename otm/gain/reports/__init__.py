"""The report about two models: positions from files or models, means, and the page.

Not here: recorded drafts and formulas (`otm.gain`), the command (`otm.cli.report`), and the answers
of a server under audit (`otm.audit.streams.server.answers`).
"""
