"""To come."""
def audit() -> None:
    """To come."""
