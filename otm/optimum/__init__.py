"""OTM-k itself: the optimal acceptance probability by closed form and by linear program."""
