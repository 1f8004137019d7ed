"""Where models are served: the decoding loops inside other libraries.

Not here: models of other libraries (`otm.models`), audits of their code (`otm.audit.adapters`).
"""
