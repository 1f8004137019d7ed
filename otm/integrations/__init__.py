"""Where models are served: the decoding loops inside other libraries."""
