"""The source of events, in a process of its own: `python -m hibernaut.cli.demo.tree.canary STORE FOLDER SECONDS`.

It knows nothing of agents. For each line of its input it takes SECONDS, looks which release is live, and appends one
line to the log in FOLDER. It prints what it has written, and ends with its input. STORE only tells whose it is.
"""

import sys
import time
from pathlib import Path

import msgspec

from hibernaut.cli.demo.tree.log import LOG, Line, append
from hibernaut.cli.demo.tree.release import read_live

MEASURED = {"4.2": (2, 4, 3, 5, 61), "4.1": (1,)}
"""How many of 1,000 requests failed, by release and as time goes by; the last number stays."""

FIRST_HOUR, MINUTES = 9, 5
"""When the first line is written by the canary's own clock, and how long after it every other one."""


def written(output: str) -> list[Line]:
    """Return all lines that a canary says it has written."""
    return [msgspec.json.decode(line, type=Line) for line in output.splitlines()]


def main() -> None:
    """Write a line whenever one is asked for."""
    _, folder, seconds = sys.argv[1:]
    count: dict[str, int] = {}
    for number, _ in enumerate(sys.stdin):
        time.sleep(float(seconds))
        release = read_live(Path(folder))
        measured, place = MEASURED[release], count.get(release, 0)
        count[release] = place + 1
        failed = measured[min(place, len(measured) - 1)]
        hour, minute = divmod(number * MINUTES, 60)
        text = f"{FIRST_HOUR + hour:02}:{minute:02} release {release}: {failed} of 1,000 requests failed"
        print(msgspec.json.encode(append(Path(folder) / LOG, text)).decode(), flush=True)


if __name__ == "__main__":
    main()
