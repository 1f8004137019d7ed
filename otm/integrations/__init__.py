"""OTM inside libraries that serve models.

Models of other libraries are in `otm.models`, and audits of their code in `otm.audit.adapters`.
"""
