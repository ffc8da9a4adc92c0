"""Python's collector of garbage in cycles, in a process that runs agents.

What a slice makes is in no cycle. But many slices at work are many objects at once, and whenever there are so many
more, the collector looks at all that a process has, modules and their functions included: 8 % of a completion with 500
agents at work.
"""

import gc
from typing import Final

SELDOM: Final = (20_000, 20, 20)
"""More objects than before until the youngest are looked at; times of that until the next older ones are, and all."""


def collect_seldom() -> None:
    """Look for garbage more seldom, and no more among what there is by now.

    It is for the whole process, so only whoever owns that calls it: once, when everything is loaded.
    """
    gc.freeze()
    gc.set_threshold(*SELDOM)
