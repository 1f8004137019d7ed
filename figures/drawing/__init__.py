"""How figures look: nothing in here changes a number, and no number is computed in here."""
