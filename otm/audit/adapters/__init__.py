"""Subjects of the audit from what others have: plain functions, rules, libraries."""

from otm.audit.adapters.plain import chain, loop, token_rule

__all__ = ["chain", "loop", "token_rule"]
