"""What only a GPU can show of the kernels, in steps that can be resumed (`__main__`).

`stages` lists the steps, `settings` their sizes; `runner` runs each in a process of its own and
keeps its results.  `stand_in` has what stands in for CUDA in a rehearsal on a CPU.
"""
