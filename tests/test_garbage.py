"""How seldom Python looks for cycles in a process that only runs agents. In a process of its own: it is for all."""

import subprocess
import sys

PROGRAM = """
import gc
from hibernaut.garbage import SELDOM, collect_seldom

class Knot:
    pass

collect_seldom()
assert gc.get_threshold() == SELDOM
assert gc.get_freeze_count() > 1_000
for _ in range(100_000):
    knot = Knot()
    knot.itself = knot
left = sum(isinstance(one, Knot) for one in gc.get_objects())
assert left < 50_000, left
"""


def test_cycles_are_found_all_the_same() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
