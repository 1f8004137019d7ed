"""The report about two models: positions from files or models, means, and the page.

Not here: recorded drafts and formulas (`otm.gain`), and the command (`otm.cli.report`).
"""
