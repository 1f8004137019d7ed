"""The rules as the papers write them, in NumPy: the definition, exact on arrays of fractions."""
