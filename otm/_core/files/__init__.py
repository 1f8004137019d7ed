"""Files of numbers and JSON that others wrote: checked before anything is loaded, without pickles.

`open_arrays` reads headers alone and says what is in a `.npy`, `.npz` or `.safetensors` file;
numbers follow in blocks of rows.  `read_json` takes what the JSON standard allows and no more.
Whatever is wrong with a file is an `InvalidInputError` of one line that names it.

Not here: files of one package alone, which that package reads (`otm.models.gpt`, certificates).
"""
