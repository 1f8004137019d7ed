"""Compare rules on one pair of distributions (`otm.compare`), or on many pairs and for many k.

The rules are in `otm.coupling`, each in one file.
"""
