"""SpecTr (Sun et al., NeurIPS 2023): its figures and tables."""
