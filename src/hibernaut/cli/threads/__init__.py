"""`hibernaut threads`: see what threads are, and steer them."""

from hibernaut.cli.threads import (  # each adds its commands to the group
    history,
    listing,
    moving,
    queue,
    show,
    steering,
    tree,
)
from hibernaut.cli.threads.group import threads

__all__ = ["history", "listing", "moving", "queue", "show", "steering", "threads", "tree"]
