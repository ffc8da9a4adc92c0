"""What the page on checking says is what the code does."""

import re
from pathlib import Path

from hibernaut.rap.check.findings import FORMAT, LONGEST_SEEN, Report
from hibernaut.rap.check.rules import RULES
from hibernaut.rap.check.session import Settings

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "rap-check.md").read_text(encoding="utf-8")
PROTOCOL = (DOCS / "rap.md").read_text(encoding="utf-8")


def test_the_table_of_rules_is_that_of_the_code() -> None:
    documented = re.findall(r"^\| `([a-z0-9.-]+)` \| (MUST|SHOULD|\+) \| (.+) \| (.+) \|$", PAGE, re.MULTILINE)
    assert documented == [(rule.id, rule.level, rule.demand, rule.section) for rule in RULES]


def test_every_rule_comes_from_a_section_that_there_is() -> None:
    assert {rule.section for rule in RULES} <= set(re.findall(r"^#+ (.+)$", PROTOCOL, re.MULTILINE))


def test_the_json_form_and_the_times_are_as_documented() -> None:
    fields = Report("", "", 0, 0, ()).fields()
    section = PAGE.partition("## The report as JSON\n")[2].partition("\n## ")[0]
    assert [name for name in fields if f"`{name}`" not in section] == []
    assert f"version of this form: {FORMAT} |" in section
    assert f"(at most {LONGEST_SEEN} characters)" in section
    settings = Settings()
    times = (settings.called_back_within, settings.quiet, settings.deadline)
    assert [f"({milliseconds // 1_000} s)" in PAGE for milliseconds in times] == [True, True, True]
    assert f"Retry-After: {settings.retry_after}`" in PAGE
    assert f"longer than {settings.acknowledged_within // 1_000} s" in PAGE
