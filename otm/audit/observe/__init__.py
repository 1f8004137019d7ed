"""The output distribution of a verifier: by exact paths, by breakpoints, or by many runs.

Not here: recorded steps and servers, which nobody can run again (`otm.audit.streams`).
"""
