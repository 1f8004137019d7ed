"""How values, progress and interrupts are shown to people.

Not here: reports and pages, which the packages that make them write.
"""
