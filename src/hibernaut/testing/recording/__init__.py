"""Completions of a real model, kept in a file, and played back from then on."""

from hibernaut.testing.recording.asked import NotRecorded
from hibernaut.testing.recording.model import RecordedModel
from hibernaut.testing.recording.recording import Recording

__all__ = ["NotRecorded", "RecordedModel", "Recording"]
