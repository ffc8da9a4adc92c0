"""Fails when a completion costs 30 % more than was recorded, beside a floor of plain Python measured in turn with it.

    python benchmarks/gate.py [--record]

`gate.json` beside this file has what was recorded, by version of Python, since a faster interpreter speeds up ours more
than the floor. `--record` measures and writes it anew: after a change that made the runtime faster, so that nothing
eats that up again, or one that is worth its cost. A version that has no record passes.
"""

import argparse
import asyncio
import sys
from pathlib import Path

import msgspec

from hibernaut.bench.gate import AGAIN, MOST, Cost, cost, judge

RECORD = Path(__file__).with_name("gate.json")

FASTER = 0.85
"""Times the recorded cost below which it is time to record anew."""


def told(measured: Cost) -> str:
    """Return a measurement as a sentence."""
    middle = f"half of all pairs {measured.low:.1f} to {measured.high:.1f}"
    return f"a completion costs {measured.median:.1f} times the floor's ({measured.pairs} pairs, {middle})"


def main() -> int:
    """Measure and judge, or record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write down what is measured now")
    given = parser.parse_args()
    recorded: dict[str, float] = msgspec.json.decode(RECORD.read_bytes()) if RECORD.exists() else {}
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if given.record or version not in recorded:
        measured = asyncio.run(cost(AGAIN))
        print(told(measured))
        if not given.record:
            print(f"nothing is recorded for Python {version}: python benchmarks/gate.py --record")
            return 0
        recorded[version] = round(measured.median, 2)
        RECORD.write_bytes(msgspec.json.format(msgspec.json.encode(dict(sorted(recorded.items())))) + b"\n")
        return 0
    verdict = asyncio.run(judge(recorded[version]))
    for measured in verdict.measured:
        print(told(measured))
    print(f"that is {verdict.times:.2f} times what is recorded, {verdict.recorded:.1f}; at most {MOST} times may be")
    if verdict.times < FASTER:
        print("it has become faster: record it with python benchmarks/gate.py --record")
    if not verdict.passed:
        print("error: the runtime has become slower; find out why, or record the new cost if it is worth it")
    return 0 if verdict.passed else 1


if __name__ == "__main__":
    sys.exit(main())
