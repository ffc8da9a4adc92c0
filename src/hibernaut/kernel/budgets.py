"""What a thread may use up, and what becomes of it when it has: it is parked, and says what was spent on what.

A budget counts from the moment at which somebody last let the thread go on.
"""

from collections.abc import Iterator, Mapping

import msgspec

from hibernaut.kernel.authority import least
from hibernaut.kernel.draft import Draft
from hibernaut.kernel.head import Head
from hibernaut.messages.text import dollars, duration


class _Budget(msgspec.Struct, frozen=True):
    """What is bounded, in words, how much of it there is, and how much was used."""

    name: str
    bound: int
    used: int


def grant_anew(head: Head) -> None:
    """Let a thread spend as much again."""
    head.granted = head.used
    head.granted_cost = (head.cost, head.priced)
    head.begun = {}
    head.worked = 0


def park_if_spent(draft: Draft) -> None:
    """Park a thread that has used up what it needs to be asked for its next turn."""
    if not draft.authority.is_bounded and not draft.options.token_budget:
        return
    if draft.authority.cost and (unpriced := _unpriced(draft.head)):
        draft.park(
            f"what it may cost is bounded, and {unpriced:,} tokens have no known price ({_spending(draft)}); say the "
            "prices of its model, or resume it"
        )
        return
    for budget in _budgets(draft):
        if budget.used >= budget.bound:
            draft.park(f"{budget.name} is used up ({_spending(draft)}); resuming grants as much again")
            return


def park_if_called_enough(draft: Draft) -> bool:
    """Park a thread that has begun as many calls as it may; tell whether it has."""
    bound, begun = draft.authority.calls, draft.head.begun
    if not bound or sum(begun.values()) < bound:
        return False
    spent = spent_on(begun)
    draft.park(f"its authority lets it begin {bound:,} calls, and it has ({spent}); resuming grants as many")
    return True


def spent_on(begun: Mapping[str, int]) -> str:
    """Return what calls were spent on, most first."""
    most = sorted(begun.items(), key=lambda entry: (-entry[1], entry[0]))
    return ", ".join(f"{tool} {count:,}" for tool, count in most)


def _budgets(draft: Draft) -> Iterator[_Budget]:
    head, authority = draft.head, draft.authority
    if tokens := least((draft.options.token_budget, authority.tokens)):
        yield _Budget(f"the token budget of {tokens:,}", tokens, head.used - head.granted)
    if cost := authority.cost:
        yield _Budget(f"the budget of {dollars(cost)}", cost, head.cost - head.granted_cost[0])
    if time := 1_000 * authority.seconds:
        yield _Budget(f"the working time of {duration(time)}", time, head.worked)


def _unpriced(head: Head) -> int:
    """Return the tokens without a price that were used since somebody last let the thread go on."""
    return head.used - head.granted - (head.priced - head.granted_cost[1])


def _spending(draft: Draft) -> str:
    head = draft.head
    used = head.usage
    said = [f"{head.used:,} tokens used in all, {used.input:,} for prompts and {used.output:,} for answers"]
    if head.estimated:
        said.append(f"{head.estimated:,} of them are estimated, of completions that were cut short")
    if head.cost:
        said.append(f"cost {dollars(head.cost)}")
    if head.worked:
        said.append(f"worked {duration(head.worked)}")
    if head.begun:
        said.append(f"calls begun: {spent_on(head.begun)}")
    return "; ".join(said)
