"""Resumable checks and measurements of the kernels that need a GPU (`__main__`).

`stages` lists the stages, and `settings` their sizes.  `runner` runs each stage in a separate
process and keeps its results.  `stand_in` replaces CUDA in a rehearsal on a CPU.
"""
