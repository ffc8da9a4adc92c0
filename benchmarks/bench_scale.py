"""The density workload at a size that takes under a minute, on both stores. `hibernaut bench scale` takes any size."""

import asyncio

import msgspec

from hibernaut.bench.scale import scale

if __name__ == "__main__":
    for store in ("memory", "sqlite"):
        print(msgspec.json.encode(asyncio.run(scale(1_000, 10, store))).decode())
