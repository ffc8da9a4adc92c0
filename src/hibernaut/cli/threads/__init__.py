"""`hibernaut threads`: see what threads are, and steer them."""

from hibernaut.cli.threads import history, listing, moving, show, steering, tree  # each adds its commands to the group
from hibernaut.cli.threads.group import threads

__all__ = ["history", "listing", "moving", "show", "steering", "threads", "tree"]
