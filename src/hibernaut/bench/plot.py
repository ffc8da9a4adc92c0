"""A picture of a report: what the process held as agents came, and how fast it was as time went by."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hibernaut.bench.report import SAMPLES, Report
from hibernaut.errors import ConfigurationError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ENDINGS = (".png", ".svg")

COLOUR = "#1f6f8b"


def check(path: Path) -> None:
    """See whether a picture can be drawn there, before anything is measured for it.

    Raises:
        ConfigurationError: the ending is another, there is no such folder, or the extra is not installed.
    """
    if not path.absolute().parent.is_dir():
        raise ConfigurationError(f"{path} cannot be drawn: there is no folder {path.parent}")
    if path.suffix not in ENDINGS:
        raise ConfigurationError(f"{path} must end in .png or .svg")
    try:
        import matplotlib as _  # noqa: F401, ICN001, PLC0415  # an extra, and slow to import
    except ImportError:
        raise ConfigurationError("pictures need matplotlib: pip install 'hibernaut[plot]'") from None


def draw(report: Report, path: Path) -> None:
    """Draw the samples of all runs of a report."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    picture = Figure(figsize=(13, 4.2), layout="constrained")
    memory, speed, share = picture.subplots(1, 3)
    for run in report.runs:
        samples: list[dict[str, Any]] = run[SAMPLES]
        seconds = [one["seconds"] for one in samples]
        _line(memory, [one["agents"] for one in samples], [one["resident_bytes"] / 2**20 for one in samples])
        _line(speed, seconds, [one["completions_per_s"] for one in samples])
        _line(share, seconds, [one["completions_per_s"] / one["floor_per_s"] * 100 for one in samples])
    memory.set(title="Memory", xlabel="idle agents", ylabel="resident MiB")
    speed.set(title="Throughput", xlabel="seconds", ylabel="completions per second")
    share.set(title="Beside plain Python", xlabel="seconds", ylabel="% of the floor")
    for axes in (memory, speed, share):
        axes.set_ylim(0, axes.get_ylim()[1] * 1.05)
        axes.set_xlim(left=0)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.xaxis.set_major_formatter("{x:,g}")
        axes.yaxis.set_major_formatter("{x:,g}")
    given = ", ".join(f"{name} {value}" for name, value in report.parameters.items() if value)
    picture.suptitle(f"hibernaut bench {report.bench} · {given}", fontsize=11)
    picture.savefig(path, dpi=150)


def _line(axes: "Axes", across: list[float], up: list[float]) -> None:
    axes.plot(across, up, color=COLOUR, marker=".")
