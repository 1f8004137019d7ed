"""Servers of engines in separate environments: audits, and measurements of OTM's plug-in."""
