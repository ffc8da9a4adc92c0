"""Messages of every kind, as Hypothesis makes them."""

import base64

from hypothesis import strategies as st

from hibernaut.rap import callbacks, requests

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    ["\x00", "\u2400\u241b", "e\u0301"]
)
IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXTS, JSON_VALUES, max_size=4)
ADDRESSES = st.sampled_from(["https://tools.example/r?a=1", "http://127.0.0.1:8080/x", "http://[::1]:9/"])
OPTIONAL = st.none() | TEXTS
PARTS = st.builds(callbacks.TextPart, TEXTS) | st.builds(
    callbacks.ImagePart,
    st.binary(max_size=20).map(lambda data: base64.b64encode(data).decode()),
    st.sampled_from(["image/png", "image/x", ""]),
)
NUMBERS = st.integers(0, 2**63 - 1)

RESULTS = st.builds(
    callbacks.Result,
    group_id=IDS,
    id=IDS,
    call_id=OPTIONAL,
    text=TEXTS,
    content=st.lists(PARTS, max_size=3).map(tuple),
    display_as=st.lists(OBJECTS, max_size=2).map(tuple),
    subscription=st.booleans(),
    is_error=st.booleans(),
)
EVENTS = st.builds(
    callbacks.SubscriptionEvent,
    group_id=IDS,
    tool_call_id=IDS,
    text=TEXTS,
    associative=st.booleans(),
    final=st.booleans(),
    event_id=TEXTS,
    sequence=NUMBERS,
)
OAUTHS = st.builds(
    callbacks.OAuth,
    group_id=IDS,
    id=IDS,
    call_id=OPTIONAL,
    auth_url=st.sampled_from(["https://login.example/o?state=1", "http://localhost:9/o"]),
)
CHOICES = st.lists(TEXTS, min_size=1, max_size=4).flatmap(
    lambda choices: st.builds(
        callbacks.UserChoice,
        group_id=IDS,
        id=IDS,
        call_id=OPTIONAL,
        prompt=TEXTS.map("Which? {}".format),
        choices=st.just(tuple(choices)),
        default=st.integers(0, len(choices) - 1),
        response_url=ADDRESSES,
        choice_id=TEXTS,
    )
)
VIEWS = st.builds(callbacks.ViewUpdate, group_id=IDS, view_type=IDS, content=JSON_VALUES)
CALLBACKS = st.one_of(RESULTS, EVENTS, OAUTHS, CHOICES, VIEWS)

REQUESTS = st.one_of(
    st.builds(
        requests.Invocation,
        IDS,
        OBJECTS,
        IDS,
        OPTIONAL,
        ADDRESSES,
        IDS,
        st.none() | st.lists(IDS, max_size=3).map(tuple),
        OPTIONAL,
    ),
    st.builds(requests.CancelToolCall, IDS, IDS),
    st.builds(requests.CloseThread, IDS),
    st.builds(requests.AskStatus, IDS, IDS),
    st.builds(requests.Alive, st.booleans()),
    st.builds(requests.Migrate, IDS, TEXTS),
    st.builds(requests.Selected, IDS, NUMBERS),
)
