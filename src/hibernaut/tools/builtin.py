"""The tools that every thread has: they split its work, let it wait, and name it.

They are functions like the tools of a program, but pure: they get the moment of the call and return what the kernel is
to do with it. Their docstrings are what a model reads. They do nothing outside of
their tree of threads, so they need no authority.
"""

import bisect
import difflib
import functools
import re
import zoneinfo
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from hibernaut.kernel.family import Close, Spawn, Tell, TellChild, Unsubscribe
from hibernaut.kernel.fold import Refusal, Rest, Settled, Verdict
from hibernaut.messages.text import clean, shorten

LONGEST_SLEEP = 10 * 366 * 86_400
"""Seconds that a thread may sleep, ten years: what is asked for beyond that is a slip."""

LONGEST_TITLE = 100
"""Characters of a title."""

_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME = re.compile(r"([0-9]{2}):([0-9]{2})(?::([0-9]{2}))?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_STEERING = dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)])
"""Characters that turn the direction of text, and could make a title read as another."""


class Now(int):
    """The moment of the call, in milliseconds since 1970: a parameter that a model does not see."""


def sleep_until_event_or_input() -> Rest:
    """Rest until something arrives: a message of the user, an event, a result that comes late.

    Waiting costs nothing. Call this rather than asking again and again when all that is left to do is to wait.
    """
    return Rest()


def sleep(now: Now, seconds: float, reason: str | None = None) -> Rest | Settled | Refusal:  # noqa: ARG001  # for people
    """Rest for some time. Whatever arrives before wakes you early.

    Args:
        now: The moment of the call.
        seconds: How long, from a fraction of a second to ten years.
        reason: Why, in a few words, for the people who watch.
    """
    if seconds <= 0:
        return Settled(f"Woken at once: {seconds:g} s is no time to sleep.")
    if not seconds <= LONGEST_SLEEP:  # so that what is not a number is refused as well
        return Refusal("Not slept: at most ten years can be slept.")
    return Rest(delay=max(1, round(seconds * 1000)))


def sleep_until(now: Now, date: str, time: str, timezone: str = "UTC") -> Rest | Settled | Refusal:
    """Rest until a date and time. Whatever arrives before wakes you early; a time that is past wakes you at once.

    A local time that a change of the clocks skips stands for the moment of the change, one that occurs twice for its
    first occurrence.

    Args:
        now: The moment of the call.
        date: The date as YYYY-MM-DD.
        time: The time of day as HH:MM or HH:MM:SS.
        timezone: Name of an IANA time zone that date and time are in, such as Europe/Berlin.
    """
    day, hour = _DATE.fullmatch(date), _TIME.fullmatch(time)
    if day is None:
        return Refusal(f"Not slept: the date is written YYYY-MM-DD, not {_quote(date)}.")
    if hour is None:
        return Refusal(f"Not slept: the time is written HH:MM or HH:MM:SS, not {_quote(time)}.")
    try:
        wall = datetime(
            int(day[1]), int(day[2]), int(day[3]), int(hour[1]), int(hour[2]), int(hour[3] or 0), tzinfo=UTC
        )
    except ValueError as error:
        return Refusal(f"Not slept: {date} {time} does not exist: {error}.")
    zone = _find_zone(timezone)
    if zone is None:
        return Refusal(_unknown_zone(timezone))
    due = _moment(wall, zone) * 1000
    if due > now + LONGEST_SLEEP * 1000:
        return Refusal(f"Not slept: {date} is more than ten years away.")
    if due <= now:
        return Settled(f"Woken at once: {date} {time} {timezone} is past.")
    return Rest(due=due)


def set_title(title: str) -> Settled | Refusal:
    """Set the title under which people find this conversation. Once its subject is clear is early enough.

    Args:
        title: A few words on one line.
    """
    line = clean(shorten(title.translate(_STEERING), LONGEST_TITLE))
    if not line:
        return Refusal("No title was set: it is empty.")
    return Settled(f"The title is now: {line}", title=line)


def spawn_thread(
    instructions: str,
    child_of: list[str],
    fresh_context: bool = False,  # noqa: FBT001, FBT002  # a model gives every argument by name
) -> Spawn:
    """Give a piece of work to a child thread, which works on it beside you and reports to you.

    The child knows what you know up to now. Leave its work to it, and go on with yours or wait for its report.

    Args:
        instructions: What the child is to do, and what it is to report.
        child_of: The stack of the thread that you are in, as you were told it when you entered that thread. If you were
            not told, you are in the root thread: give an empty list.
        fresh_context: The child begins with nothing but the instructions.
    """
    return Spawn(instructions, tuple(child_of), fresh_context)


def report_to_parent(report: str) -> Tell:
    """Tell the parent of the thread that you are in something, and go on. Only a child thread has a parent.

    Args:
        report: What it has to know.
    """
    return Tell(report)


def close_thread(thread_id: str, report_to_parent: str | None = None) -> Close:
    """End the child thread that you are in, or a child of it, for good, with all its own children.

    Args:
        thread_id: Id of the thread to end.
        report_to_parent: What the parent of the thread that you are in has to know at its end.
    """
    return Close(thread_id, report_to_parent or "")


def send_message_to_child(thread_id: str, message: str) -> TellChild:
    """Tell a child of the thread that you are in something. What it was told before stands.

    Args:
        thread_id: Id of the child, as spawn_thread returned it.
        message: What it has to know.
    """
    return TellChild(thread_id, message)


def cancel_subscription(tool_call_id: str) -> Unsubscribe:
    """End a subscription of the thread that you are in: no more of its events will come.

    Args:
        tool_call_id: Id of the call that made the subscription (`original_tool_call_id` of its events).
    """
    return Unsubscribe(tool_call_id)


BUILT_IN: tuple[Callable[..., Verdict], ...] = (
    spawn_thread,
    report_to_parent,
    close_thread,
    send_message_to_child,
    cancel_subscription,
    sleep_until_event_or_input,
    sleep,
    sleep_until,
    set_title,
)
"""In the order in which a model is shown them."""


def _moment(wall: datetime, zone: zoneinfo.ZoneInfo) -> int:
    """Return the seconds since 1970 at which clocks in the zone show what `wall` says first, or jump over it."""
    shown = (wall - _EPOCH) // _SECOND
    before = _offset(wall.replace(tzinfo=zone, fold=0))
    after = _offset(wall.replace(tzinfo=zone, fold=1))
    if after <= before:
        return shown - before
    candidates = range(shown - after + 1, shown - before + 1)
    jump = bisect.bisect_left(candidates, True, key=lambda moment: _offset_at(moment, zone) != before)
    return candidates[jump]


def _offset(moment: datetime) -> int:
    return (moment.utcoffset() or timedelta()) // _SECOND


def _offset_at(moment: int, zone: zoneinfo.ZoneInfo) -> int:
    return _offset((_EPOCH + moment * _SECOND).astimezone(zone))


def _find_zone(name: str) -> zoneinfo.ZoneInfo | None:
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):  # names of folders and other files are OSErrors
        return None


def _unknown_zone(name: str) -> str:
    known = _known_zones()
    close = difflib.get_close_matches(name[:64].casefold(), known, n=5, cutoff=0.7)
    meant = list(dict.fromkeys(known[key] for key in close))
    hint = f" Did you mean {' or '.join(meant)}?" if meant else ""
    return f"Not slept: {_quote(name)} is no time zone; use an IANA name such as Europe/Berlin or UTC.{hint}"


@functools.cache
def _known_zones() -> dict[str, str]:
    """Return the names of zones by what somebody may call them: the whole name, or the city alone."""
    names = sorted(zoneinfo.available_timezones())
    cities = {name.rpartition("/")[2].casefold(): name for name in reversed(names)}
    return cities | {name.casefold(): name for name in names}


def _quote(text: str) -> str:
    return f'"{clean(shorten(text, 40))}"'
