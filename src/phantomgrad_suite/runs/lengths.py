"""Lengths of a part of a training: numbers of steps or, as Lightning has them, shares of all."""


def check_length(name: str, length: int | float, least: int = 0) -> None:
    """Raise :class:`ValueError` unless ``length`` is an integer or a share."""
    is_share = isinstance(length, float) and 0 <= length <= 1
    if not is_share and (isinstance(length, float) or length < least):
        raise ValueError(
            f"{name} must be at least {least}, or a share of the steps from 0.0 to 1.0, "
            f"got {length}"
        )


def in_steps(length: int | float, steps: float) -> int:
    """Return a length in a training of so many ``steps``."""
    return round(length * steps) if isinstance(length, float) else length
