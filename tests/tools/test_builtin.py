from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hibernaut.kernel.fold import Refusal, Rest, Settled
from hibernaut.tools.builtin import Now, set_title, sleep, sleep_until, sleep_until_event_or_input


def moment(text: str) -> Now:
    return Now(datetime.fromisoformat(text).timestamp() * 1000)


NOW = moment("2026-03-01T12:00:00+00:00")


def due(date: str, time: str, timezone: str = "UTC", now: Now = NOW) -> datetime:
    rest = sleep_until(now, date, time, timezone)
    assert isinstance(rest, Rest), rest
    assert rest.delay == 0
    return datetime.fromtimestamp(rest.due / 1000, UTC)


def refused(verdict: Rest | Settled | Refusal) -> str:
    assert isinstance(verdict, Refusal), verdict
    return verdict.reason


def test_resting_for_whatever_comes_has_no_end_of_its_own() -> None:
    assert sleep_until_event_or_input() == Rest(delay=0, due=0)


@pytest.mark.parametrize(
    "seconds,milliseconds",
    [(0.5, 500), (900, 900_000), (901, 901_000), (400 * 86_400, 34_560_000_000), (0.0001, 1), (0.07, 70)],
)
def test_a37_a_sleep_lasts_as_long_as_it_says(seconds: float, milliseconds: int) -> None:
    assert sleep(NOW, seconds) == Rest(delay=milliseconds)


@pytest.mark.parametrize("seconds", [0, -0.0, -1, -1e300, float("-inf")])
def test_a37_a_sleep_of_no_time_is_over_at_once(seconds: float) -> None:
    assert isinstance(sleep(NOW, seconds), Settled)


@given(st.floats(min_value=1e-300, max_value=3_600_000_000, exclude_min=True))
def test_no_sleep_that_has_an_end_is_taken_for_one_that_has_none(seconds: float) -> None:
    verdict = sleep(NOW, seconds)
    assert isinstance(verdict, Refusal) or (isinstance(verdict, Rest) and verdict.delay >= 1)


@pytest.mark.parametrize("seconds", [11 * 366 * 86_400, 1e300, float("inf"), float("nan")])
def test_a37_a_sleep_of_more_than_ten_years_is_refused(seconds: float) -> None:
    assert "ten years" in refused(sleep(NOW, seconds))


def test_a_sleep_of_ten_years_is_possible() -> None:
    assert sleep(NOW, 3_653 * 86_400) == Rest(delay=3_653 * 86_400_000)


def test_a37_a_time_is_in_utc_unless_a_zone_is_named() -> None:
    assert due("2026-03-02", "07:30") == datetime(2026, 3, 2, 7, 30, tzinfo=UTC)
    assert due("2026-03-02", "07:30:15", "Asia/Kolkata") == datetime(2026, 3, 2, 2, 0, 15, tzinfo=UTC)
    assert due("2026-07-02", "07:30", "Europe/Berlin") == datetime(2026, 7, 2, 5, 30, tzinfo=UTC)


def test_c29_a_time_that_is_past_wakes_at_once() -> None:
    past = [("2026-03-01", "12:00"), ("2026-03-01", "11:59:59"), ("1969-12-31", "00:00"), ("0001-01-01", "00:00")]
    for date, time in past:
        verdict = sleep_until(NOW, date, time)
        assert isinstance(verdict, Settled), date
        assert f"{date} {time} UTC is past" in str(verdict.content)


def test_a_time_one_second_ahead_is_waited_for() -> None:
    assert due("2026-03-01", "12:00:01") == datetime(2026, 3, 1, 12, 0, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "date,time,zone,jump",
    [
        ("2026-03-08", "02:30", "America/New_York", "2026-03-08T07:00:00+00:00"),
        ("2026-03-08", "02:00", "America/New_York", "2026-03-08T07:00:00+00:00"),
        ("2026-03-08", "02:59:59", "America/New_York", "2026-03-08T07:00:00+00:00"),
        ("2026-03-29", "02:15", "Europe/Berlin", "2026-03-29T01:00:00+00:00"),
        ("2026-10-04", "02:10", "Australia/Lord_Howe", "2026-10-03T15:30:00+00:00"),
    ],
)
def test_a37_a_local_time_that_the_clocks_skip_is_the_moment_at_which_they_do(
    date: str, time: str, zone: str, jump: str
) -> None:
    assert due(date, time, zone) == datetime.fromisoformat(jump)


def test_c29_a_whole_day_that_a_zone_skipped_ends_when_the_next_begins() -> None:
    before = moment("2011-12-25T00:00:00+00:00")
    assert due("2011-12-30", "15:00", "Pacific/Apia", before) == datetime(2011, 12, 30, 10, tzinfo=UTC)


def test_the_seconds_beside_a_jump_of_the_clocks_are_what_they_say() -> None:
    assert due("2026-03-08", "01:59:59", "America/New_York") == datetime(2026, 3, 8, 6, 59, 59, tzinfo=UTC)
    assert due("2026-03-08", "03:00:00", "America/New_York") == datetime(2026, 3, 8, 7, 0, 0, tzinfo=UTC)


def test_c29_a_local_time_that_occurs_twice_is_the_first_of_the_two() -> None:
    assert due("2026-11-01", "01:30", "America/New_York") == datetime(2026, 11, 1, 5, 30, tzinfo=UTC)
    assert due("2026-10-25", "02:00", "Europe/Berlin") == datetime(2026, 10, 25, 0, 0, tzinfo=UTC)


@given(
    st.datetimes(min_value=datetime(2026, 3, 3), max_value=datetime(2035, 1, 1)),  # noqa: DTZ001  # wall time
    st.sampled_from(["America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Kathmandu", "UTC"]),
)
def test_a_wake_up_is_never_before_its_local_time_and_never_two_hours_after(wall: datetime, zone: str) -> None:
    wall = wall.replace(microsecond=0)
    woken = due(wall.date().isoformat(), wall.time().isoformat(), zone).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    assert wall <= woken <= wall + timedelta(hours=2)


@pytest.mark.parametrize(
    "date", ["", "tomorrow", "2026-3-2", "20260302", "2026-03-02T00:00", "٢٠٢٦-03-02", "2026-03-02\n"]
)
def test_a22_a_date_in_another_form_is_refused(date: str) -> None:
    assert "YYYY-MM-DD" in refused(sleep_until(NOW, date, "12:00"))


@pytest.mark.parametrize("time", ["", "noon", "7:30", "07:30:15.5", "07:30Z", "0730", "07:30:1"])
def test_a22_a_time_in_another_form_is_refused(time: str) -> None:
    assert "HH:MM" in refused(sleep_until(NOW, "2026-03-02", time))


@pytest.mark.parametrize("date,time", [("2026-02-30", "12:00"), ("2026-13-01", "12:00"), ("0000-01-01", "12:00")])
def test_a22_a_date_that_does_not_exist_is_refused(date: str, time: str) -> None:
    assert "does not exist" in refused(sleep_until(NOW, date, time))


@pytest.mark.parametrize("time", ["24:00", "12:60", "12:00:60"])
def test_a22_a_time_that_does_not_exist_is_refused(time: str) -> None:
    assert "does not exist" in refused(sleep_until(NOW, "2026-03-02", time))


@pytest.mark.parametrize("date", ["2037-01-01", "9999-12-31"])
def test_a_date_more_than_ten_years_away_is_refused(date: str) -> None:
    assert "ten years" in refused(sleep_until(NOW, date, "23:59:59", "America/New_York"))


@pytest.mark.parametrize(
    "name,meant",
    [
        ("Europe/Berlim", "Europe/Berlin"),
        ("europe/berlin", "Europe/Berlin"),
        ("Berlin", "Europe/Berlin"),
        ("America/NewYork", "America/New_York"),
        ("utc", "UTC"),
    ],
)
def test_an_unknown_zone_is_refused_with_the_names_that_may_be_meant(name: str, meant: str) -> None:
    assert meant in refused(sleep_until(NOW, "2026-03-02", "12:00", name)).partition("Did you mean")[2]


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "/", "America", "../../etc/passwd", "/etc/localtime", "a\x00b", "\ud800", "x" * 9_999, "zone.tab"],
)
def test_a22_whatever_is_no_zone_is_refused(name: str) -> None:
    reason = refused(sleep_until(NOW, "2026-03-02", "12:00", name))
    assert "is no time zone" in reason
    assert len(reason) < 500


@given(st.text(max_size=30), st.text(max_size=12), st.text(max_size=40))
def test_a22_no_text_makes_sleep_until_fail(date: str, time: str, zone: str) -> None:
    assert isinstance(sleep_until(NOW, date, "12:00", zone), Refusal)
    assert isinstance(sleep_until(NOW, "2026-03-02", "12:00", zone), Rest | Refusal)
    assert isinstance(sleep_until(NOW, "2026-03-02", time), Rest | Refusal)


def test_a_title_is_set_and_said() -> None:
    assert set_title("Watching the builds") == Settled("The title is now: Watching the builds", "Watching the builds")


def test_a_title_is_one_line() -> None:
    verdict = set_title("  Watching\n\tthe\u2028builds\x1b[31m ")
    assert isinstance(verdict, Settled)
    assert verdict.title == "Watching the builds [31m"


def test_a_title_cannot_turn_the_direction_of_what_is_read() -> None:
    verdict = set_title("abc\u202egpj.exe\u2066")
    assert isinstance(verdict, Settled)
    assert verdict.title == "abcgpj.exe"


def test_c17_a_long_title_is_cut_between_characters() -> None:
    verdict = set_title("👩‍👩‍👧" * 200)
    assert isinstance(verdict, Settled)
    assert verdict.title is not None
    assert len(verdict.title) <= 100
    assert verdict.title.rstrip("…") == "👩‍👩‍👧" * (len(verdict.title) // 5)


@pytest.mark.parametrize("title", ["", " \n\t", "\u202e", "\x00\x01"])
def test_an_empty_title_is_refused(title: str) -> None:
    assert "empty" in refused(set_title(title))
