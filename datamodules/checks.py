"""Checks that several data modules make of their arguments."""


def check_positive(**numbers: float | None) -> None:
    """Raise a ValueError that names the first number which is not positive; None is no number."""
    for name, number in numbers.items():
        if number is not None and number <= 0:
            raise ValueError(f"{name}={number} must be positive")
