"""Safe reading of untrusted files with arrays or JSON, without pickles.

`open_arrays` checks the headers of a `.npy`, `.npz` or `.safetensors` file before any numbers are
loaded; then the numbers are read in blocks of rows.  `read_json` accepts strict JSON only.  Every
problem with a file raises an `InvalidInputError` of one line that names the file.

Packages with their own file formats, such as `otm.models.gpt`, read their own files.
"""
