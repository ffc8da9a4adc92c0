"""Programs that the tests of the embedded store run in processes of their own, to kill them or to let them compete.

python sqlite_programs.py serve              runs one `rounds` per line of its input, each in a fork of its own
python sqlite_programs.py rounds PATH NAME   writes until it is killed, and says what was acknowledged
python sqlite_programs.py compete PATH NAME WRITERS ROUNDS CHECKPOINT_PAGES
python sqlite_programs.py limited PATH BYTES writes until a limit on the size of files stops it, then without it
python sqlite_programs.py upgrade PATH BYTES opens a file of an older format under such a limit, and then without it
python sqlite_programs.py fixture PATH       makes the file that every later version must open
"""

import asyncio
import json
import os
import resource
import sys
import time
from itertools import count
from pathlib import Path

from msgspec.structs import replace

from hibernaut.codec import sha256
from hibernaut.errors import StoreFull
from hibernaut.kernel.commit import Blob, Effect, NewThread, Outgoing, SliceCommit
from hibernaut.messages.inputs import Event, InputMessage, Timer, UserText
from hibernaut.stores.owners import process_name
from hibernaut.stores.protocol import Claim, Owner
from hibernaut.stores.sqlite import SqliteStore, writer

BODY = b"a launch configuration"
START = 1_700_000_000_000
LIMITED = Owner("engine_limited")


def now() -> int:
    return time.time_ns() // 1_000_000


def say(*words: object) -> None:
    """Write one line at once, whole: what is read was said before the process died."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def new_thread(name: str, created: int = START) -> NewThread:
    return NewThread(name, "", b"head 0", sha256(BODY), BODY, created)


def text(message_id: str, thread_id: str, size: int = 100) -> InputMessage:
    return InputMessage(message_id, thread_id, UserText("x" * size))


def round_of(claim: Claim, size: int = 500) -> SliceCommit:
    """Return a commit that leaves a trace in every table: see `check_whole` in the tests."""
    name, version = claim.thread_id, claim.version + 1
    effect = Effect(f"{name}.effect.{version}", "invoke", f"{name}.effect.{version}", "look_up")
    return SliceCommit(
        name,
        version,
        b"head %d" % version,
        b"page %d " % version + b"p" * size,
        b"receipt %d" % version,
        "open",
        consumed=tuple([message.message_id for message in claim.messages]),
        outgoing=(Outgoing(InputMessage(f"{name}.sent.{version}", "shelf", Event("call", "sent")), START * 2),),
        effects=(effect,),
        at=now(),
    )


# Writing until killed


async def rounds(path: str, name: str) -> None:
    """Put and commit as fast as it goes, with several tasks on threads of its own, until somebody kills the process."""
    store = await SqliteStore.open(path, compress=False)
    owner = Owner(f"engine_{name}", process_name(os.getpid()))
    await store.beat(owner, now())
    await asyncio.gather(*(_rounds_of(store, owner, f"{name}.{number}") for number in range(4)))


async def _rounds_of(store: SqliteStore, owner: Owner, name: str) -> None:
    await store.create([new_thread(name)], [], now())
    for number in count(1):
        message = text(f"{name}.{number}", name, 100 if number % 7 else 20_000)
        await store.put([message], now())
        say("put", name, message.message_id)
        (claim,) = await store.claim(owner, now(), 1, threads=[name])
        commit = round_of(claim, 500 if number % 5 else 30_000)
        await store.commit(claim, commit)
        say("commit", name, commit.version)


def serve() -> None:
    """Fork for every line of the input: a fork starts at once, a new interpreter takes a third of a second."""
    for line in sys.stdin:
        path, name = line.split()
        child = os.fork()
        if child == 0:
            say("pid", os.getpid())
            asyncio.run(rounds(path, name))
            os._exit(0)
        os.waitpid(child, 0)
        say("ended")


# Competing for one file


def log_size(path: str) -> int:
    return Path(f"{path}-wal").stat().st_size


async def compete(path: str, name: str, writers: int, number: int, checkpoint_pages: int) -> None:
    """Let some tasks put, claim and commit a number of times each.

    Says how many seconds the slowest round took, and how many bytes the log had at most.
    """
    writer.CHECKPOINT_PAGES, writer.CROWDED_PAGES = checkpoint_pages, 4 * checkpoint_pages
    store = await SqliteStore.open(path, compress=False)
    owner = Owner(f"engine_{name}", process_name(os.getpid()))
    slowest, largest = 0.0, 0

    async def write(thread: str) -> None:
        nonlocal slowest, largest
        for turn in range(number):
            began = time.monotonic()
            await store.put([text(f"{thread}.{turn}", thread)], now())
            (claim,) = await store.claim(owner, now(), 1, threads=[thread])
            await store.commit(claim, round_of(claim))
            slowest = max(slowest, time.monotonic() - began)
            largest = max(largest, log_size(path))

    threads = [f"{name}.{task}" for task in range(writers)]
    await store.create([new_thread(thread) for thread in threads], [], now())
    say("ready")
    sys.stdin.readline()
    await asyncio.gather(*map(write, threads))
    await store.close()
    say(json.dumps([slowest, largest]))


# No room


async def limited(path: str, size: int) -> None:
    """Write until the system refuses, then go on without the limit; say what was acknowledged."""
    store = await SqliteStore.open(path, compress=False)
    await store.create([new_thread("t"), new_thread("shelf")], [], now())
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    for number in count(1):
        try:
            await _limited_round(store, number)
        except StoreFull as error:
            say("full", error)
            break
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    await store.leave(LIMITED)
    await _limited_round(store, 0)
    await store.close()


async def _limited_round(store: SqliteStore, number: int) -> None:
    await store.put([text(f"m{number}", "t", 50_000)], now())
    say("put", "t", f"m{number}")
    (claim,) = await store.claim(LIMITED, now(), 1)
    commit = round_of(claim, 50_000)
    await store.commit(claim, commit)
    say("commit", "t", commit.version)


# The file of format 1


async def upgrade(path: str, size: int) -> None:
    """Open a file of an older format, for which there is no room at first."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        await SqliteStore.open(path)
    except StoreFull as error:
        say("full", error)
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    store = await SqliteStore.open(path)
    say("whole", len(await store.read_log("t")))
    await store.close()


async def fixture(path: str) -> None:
    """Make a store that has something of everything. The file that was made by format 1 is checked in, and stays."""
    store = await SqliteStore.open(path)
    anna, bert = Owner("engine_anna", "somewhere/1/2"), Owner("engine_bert")
    threads = [new_thread(name) for name in ("busy", "sleeping", "stopped", "closed", "shelf")]
    await store.create([*threads, NewThread("other", "tenant", b"its head", sha256(b"c"), b"c", START)], [], START)
    for version in (1, 2):
        await store.put([text(f"busy.{version}", "busy")], START + version)
        (claim,) = await store.claim(anna, START + version, 1)
        await store.commit(claim, replace(round_of(claim), at=START + version))
    await store.start_effects(anna, ["busy.effect.1"])
    await store.put([text("nul \0 and \\u0000", "busy")], START + 3, blobs=[Blob(sha256(b"blob"), b"blob")])
    await store.put([InputMessage("alarm", "sleeping", Timer("sleep", START + 50, "c"))], START, due=START + 50)
    for status in ("stopped", "closed"):
        await store.put([text("first", status)], START + 4)
        (claim,) = await store.claim(bert, START + 4, 1, threads=[status])
        commit = SliceCommit(status, 1, b"head 1", b"", b"receipt 1", status, consumed=("first",), at=START + 4)
        await store.commit(claim, commit)
    await store.put([InputMessage("held", "stopped", Event("call", "held"))], START + 5)
    await store.leave(bert)
    await store.close()


def main() -> None:
    command, *words = sys.argv[1:]
    if command == "serve":
        serve()
    elif command == "rounds":
        asyncio.run(rounds(*words))
    elif command == "compete":
        path, name, *numbers = words
        asyncio.run(compete(path, name, *map(int, numbers)))
    elif command == "limited":
        asyncio.run(limited(words[0], int(words[1])))
    elif command == "upgrade":
        asyncio.run(upgrade(words[0], int(words[1])))
    elif command == "fixture" and not Path(words[0]).exists():
        asyncio.run(fixture(words[0]))


if __name__ == "__main__":
    main()
