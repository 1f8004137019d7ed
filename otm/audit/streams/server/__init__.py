"""The audit of a server: whether its tokens are distributed as its model says.

`audit_server` asks an OpenAI-compatible server for texts and returns a `ServerReport`;
docs/audit-server.md has more.

>>> from otm.audit import audit_server
>>> from otm.audit.streams.server.simulated import simulated_server
>>> audit_server("http://simulated", transport=simulated_server()).verdict
'lossless on everything tried'
"""

from otm.audit.streams.server.audit import audit_server
from otm.audit.streams.server.report import ServerReport

__all__ = ["ServerReport", "audit_server"]
