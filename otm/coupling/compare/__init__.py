"""All rules on one pair of distributions (`otm.compare`), or on many pairs and for many k at once.

Not here: the rules, one in each file of `otm.coupling`.
"""
