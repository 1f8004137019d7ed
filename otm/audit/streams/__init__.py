"""Audits of tokens that cannot be drawn again: recorded steps, and the answers of a server.

Not here: functions that can be run on chosen uniforms (`otm.audit.observe`).
"""
