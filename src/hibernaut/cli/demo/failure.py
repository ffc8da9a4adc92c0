"""What is done when something is off: the demo stops and says so in one line."""

PATIENCE = 30.0
"""Seconds that any one step may take, on however slow a machine."""

GLANCE = 0.02
"""Seconds between two looks at whether something has come to pass."""


class DemoFailed(Exception):
    """Something that the demo claims does not hold, or does not come to pass in time."""


class DemoInterrupted(Exception):
    """A signal ended the demo."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def check(claim: bool, otherwise: str) -> None:  # noqa: FBT001  # it is what is checked
    """Go on only if a claim holds.

    Raises:
        DemoFailed: it does not, saying what is the case instead.
    """
    if not claim:
        raise DemoFailed(otherwise)
