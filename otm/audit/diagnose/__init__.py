"""Diagnose the mistake that explains a deviation, from the list of known bugs.

Not here: the test for a deviation (`otm.audit.compare`), and the mistakes of a server
(`otm.audit.streams.server.evidence.suspects`).
"""
