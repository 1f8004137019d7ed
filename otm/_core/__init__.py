"""What everything else stands on: arithmetic, checks, probabilities, text; nothing is public.

Not here: anything that a user imports; `otm.coupling` and `otm.kernels` export what authors need.
"""
