"""Output for people: short texts of values, progress lines, and the handling of Ctrl-C.

Reports and pages are in the packages that make them.
"""
