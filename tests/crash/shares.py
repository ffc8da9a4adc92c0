"""The share of a sweep that a run of the whole suite takes, which CRASH_SEED draws anew."""

import os

from hibernaut.testing.report import Report

SEED = os.environ.get("CRASH_SEED", "hibernaut")


def assert_clean(report: Report) -> None:
    """Check that a harness has run something, and found nothing."""
    assert report.runs > 1
    assert report.divergences == [], f"CRASH_SEED={SEED}\n{report.table()}"
