"""Verifiers and loops that run as programs in any language.

`child` starts and ends a program, and passes lines through pipes.  `messages` writes and reads the
lines.  `verifiers` has the adapters, and `process` makes one from a command.

Not here: programs that answer over a network (`otm.audit.streams.server`).
"""
