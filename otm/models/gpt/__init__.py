"""GPTs on bytes: the model, its files and shipped weights, and how they were trained."""
