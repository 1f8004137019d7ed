"""To come."""
def report() -> None:
    """To come."""
