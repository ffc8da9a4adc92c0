"""One server, held against the rules: the order in which they are tried, and the time that all of them have."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from hibernaut.clock import Clock, SystemClock
from hibernaut.errors import ConfigurationError
from hibernaut.ids import Ids, RandomIds
from hibernaut.rap.check import calls, choices, deliveries, discovery, notices, subscriptions
from hibernaut.rap.check.findings import Finding, Findings, Report
from hibernaut.rap.check.peer import Peer
from hibernaut.rap.check.receiver import Receiver
from hibernaut.rap.check.rules import A_CALL, BY_ID, RULES
from hibernaut.rap.check.session import Session, Settings, together
from hibernaut.rap.listening import listening


async def check(
    base: str,
    settings: Settings | None = None,
    told: Callable[[Finding], None] | None = None,
    clock: Clock | None = None,
    ids: Ids | None = None,
) -> Report:
    """Play a runtime against a server and report what it keeps and breaks.

    Args:
        base: the server's address, without the path of the manifest.
        settings: what may be called, and how long all of it may take.
        told: is called with each finding as soon as there is one, for showing how far it is.
        clock: tells when callbacks came.
        ids: names threads and calls.

    Raises:
        NoAnswer: the server cannot be reached at all.
        MalformedInput: the base is no address.
        ConfigurationError: there is no such rule, or the server has no tool that was named; or nobody can listen here.
    """
    settings, clock = settings or Settings(), clock or SystemClock()
    if unknown := [rule for rule in settings.only if rule not in BY_ID]:
        raise ConfigurationError(f"there is no rule {unknown[0]!r}; there are: {', '.join(BY_ID)}")
    started = clock.now()
    findings = Findings(settings.only, told)
    receiver = Receiver(clock)
    over = False
    async with Peer(base, settings.headers, settings.acknowledged_within) as peer:
        session = Session(peer, receiver, findings, settings, clock, ids or RandomIds())
        async with listening(receiver, settings.host, settings.port) as here:
            receiver.public = settings.public_url or here.url
            try:
                async with asyncio.timeout(settings.deadline / 1_000):
                    await _all(session)
            except TimeoutError:
                over = True
            finally:
                await _tidy(session)
        deliveries.review(session)
        toolset = session.toolset
        return Report(
            peer.base, toolset.name if toolset else "", started, clock.now() - started, findings.all(over=over)
        )


async def _all(session: Session) -> None:
    if not await discovery.discover(session):
        _nothing_tried(session, "there is no manifest")
        return
    _check_named(session)
    if not session.peer.endpoint:
        _nothing_tried(
            session, "the manifest has no endpoint that a runtime would use", "discovery.manifest", "discovery.schemas"
        )
        await together(notices.cancellations(session), notices.closings(session), notices.unknown_status(session))
        return
    await calls.unknown_operation(session)
    if session.sample is not None:
        await calls.acknowledgement(session, session.sample)
    await together(*_probes(session))


def _probes(session: Session) -> list[Coroutine[Any, Any, None]]:
    settings = session.settings
    probes = [
        calls.unfitting_arguments(session),
        calls.answers(session),
        notices.cancellations(session),
        notices.closings(session),
        notices.unknown_status(session),
    ]
    if (sample := session.sample) is not None:
        probes += [
            calls.optional_fields(session, sample),
            calls.unknown_fields(session, sample),
            calls.utf_8(session, sample),
            calls.same_key(session, sample),
            deliveries.come_again(session, sample),
            deliveries.give_up(session, sample),
        ]
    if session.toolset is None:
        _nothing_tried(session, "the manifest is refused", *(rule.id for rule in RULES if rule.needs in ("", A_CALL)))
        return probes
    probes += [notices.at_work(session, named) for named in settings.slow]
    probes += [choices.choose(session, named) for named in settings.choose]
    for named in settings.subscribe:
        probes += [subscriptions.follow(session, named), subscriptions.cancel(session, named)]
    return probes


def _check_named(session: Session) -> None:
    settings = session.settings
    if session.toolset is None:
        return
    names = [tool.name for tool in session.toolset.tools]
    for name, _ in (*settings.tools, *settings.slow, *settings.subscribe, *settings.choose):
        if name not in names:
            raise ConfigurationError(f"the server has no tool {name!r}; it has: {', '.join(names)}")


def _nothing_tried(session: Session, why: str, *but: str) -> None:
    for rule in BY_ID:
        if rule not in but:
            session.findings.not_tried(rule, why)


async def _tidy(session: Session) -> None:
    """Close the threads of calls that may still be at work, so that the check leaves none behind."""
    special = {name for name, _ in (*session.settings.slow, *session.settings.subscribe, *session.settings.choose)}
    left = [call.group_id for call in session.sent if call.operation in special]
    await together(*map(session.peer.close_thread, left))
