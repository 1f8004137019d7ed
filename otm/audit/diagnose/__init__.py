"""The name of the mistake that explains a deviation: known bugs, and where a loop shows them.

Not here: whether there is a deviation at all (`otm.audit.compare`), and the mistakes of a server
(`otm.audit.streams.server.suspects`).
"""
