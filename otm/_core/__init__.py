"""What everything else stands on: arithmetic, checks, probabilities, text; nothing is public."""
