"""Tables as text."""

from __future__ import annotations

from otm.text_table import text_table


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    """Bug: a heading, or a row, that is left out when widths are taken; blanks at line ends."""
    rows = [["a", "1", ""], ["bcd", "22", "x"]]
    assert text_table(["rule", "α", "y"], rows).splitlines() == [
        "rule  α   y",
        "----  --  -",
        "a     1",
        "bcd   22  x",
    ]
    assert text_table(None, rows) == "a    1\nbcd  22  x"
    assert text_table(["a", "b"], []) == "a  b\n-  -"
    assert not text_table(None, [])
