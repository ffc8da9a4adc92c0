"""`hibernaut record`: one task as `run` does it, and what the model says kept in a file for tests."""

import asyncio
import os
import shlex
from pathlib import Path
from typing import Any

import click

from hibernaut.cli import options
from hibernaut.cli.failures import Leave
from hibernaut.cli.models import RECORDED, NamedModels
from hibernaut.cli.run import Task, carry_out, remark, task_of, task_options
from hibernaut.cli.running import run_async
from hibernaut.credentials import BY_NAME, is_named
from hibernaut.models.configuration import Configuration, find_configuration
from hibernaut.models.protocol import Model
from hibernaut.testing.recording import RecordedModel, Recording


@click.command(
    epilog=options.examples(
        'hibernaut record "Build abc456" --model anthropic:claude-haiku-4-5 --tools builds.py --to tests/build.json',
        'hibernaut run "Build abc456" --model recorded:tests/build.json --tools builds.py',
    )
)
@task_options
@click.option(
    "--to",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="FILE",
    help="Where what the model says is kept (JSON). A FILE that is there is refused.",
)
@click.option("--append", is_flag=True, help="Play back what FILE has already, and add what it has not.")
@click.option("--force", is_flag=True, help="Record FILE anew.")
def record(file: Path, *, append: bool, force: bool, **given: Any) -> None:
    """Give an agent one task as `run` does, and keep what the model says for tests.

    `--model recorded:FILE` then plays it back, wherever a model is named, without a network and without keys; a request
    that is not the recorded one is refused, with the first difference.

    FILE has what the model was shown and what it said, without keys and other secrets. It is written once, at the end:
    not if the command is interrupted, nor if a completion failed for good.
    """
    task = task_of(**given)
    if append and force:
        raise click.UsageError("--append keeps what is in the file and --force does not: give one of them")
    if file.exists() and not (append or force):
        raise click.UsageError(f"{file} is there already: --append adds to it, --force records it anew")
    _check_place(file)
    configuration = find_configuration()
    recording = Recording(file, anew=force, secrets=_secrets_of(configuration))
    click.get_current_context().exit(run_async(_record(task, recording)))


async def _record(task: Task, recording: Recording) -> int:
    models = _Recorded(task.setting.model, recording)
    try:
        code = await carry_out(task, models)
    except Leave:
        _keep(recording)
        raise
    except asyncio.CancelledError:
        remark("Nothing was recorded.")
        raise
    _keep(recording)
    return code


class _Recorded(NamedModels):
    """The models that the command knows; what they say is recorded."""

    def __init__(self, default: str, recording: Recording) -> None:
        super().__init__(default)
        self._recording = recording

    def resolve(self, name: str) -> Model:
        return RecordedModel(self._recording, super().resolve(name))


def _keep(recording: Recording) -> None:
    """Write the file, if there is something in it, and say so."""
    if not recording.is_whole:
        remark("Nothing was recorded: a completion has failed, or did not come to its end.")
    elif recording.added:
        recording.write()
        count = "1 completion" if recording.added == 1 else f"{recording.added:,} completions"
        named = shlex.quote(f"{RECORDED}{recording.path}")
        remark(f"Recorded {count} in {recording.path}; `--model {named}` plays them back.")
    else:
        remark("Nothing was recorded" + (f": {recording.path} has it all." if not recording.is_empty else "."))


def _check_place(file: Path) -> None:
    """Refuse what cannot be written before a model is asked.

    Raises:
        UsageError: it cannot.
    """
    folder = next(parent for parent in file.absolute().parents if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise click.UsageError(f"{file} cannot be written: {folder} is no directory that you may write in")


def _secrets_of(configuration: Configuration) -> list[str]:
    """Return the secrets that a configuration has or names."""
    written = [settings.key for settings in configuration.providers.values()]
    written += [value for settings in configuration.providers.values() for value in settings.headers.values()]
    return [os.environ.get(one.removeprefix(BY_NAME).strip(), "") if is_named(one) else one for one in written]
