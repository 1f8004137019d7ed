"""Wagner et al. (EMNLP 2024): their figures and tables."""
