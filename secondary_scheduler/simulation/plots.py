# SPDX-License-Identifier: Apache-2.0

"""Plots of the results of experiments, as PNG files."""

from collections.abc import Mapping, Sequence
import dataclasses
import pathlib
import typing

from secondary_scheduler.reading.values import InputError

#: Coordinates of the points of a line, across and up.
Line = tuple[Sequence[float], Sequence[float]]
#: Marks of points that no line joins.
_MARKS = 'oxs^vD+*'
#: Rows of a Gantt chart up to which each has a label.
_MOST_LABELS = 40


@dataclasses.dataclass(frozen=True)
class Chart:
    """Lines by name, with the labels ``up`` and ``across`` of the axes.

    Points are ``joined`` if they are a course.  ``scale`` and ``ticks`` (names
    of places) are of the horizontal axis.
    """

    up: str
    lines: Mapping[str, Line]
    across: str = 'time (s)'
    title: str = ''
    joined: bool = True
    scale: typing.Literal['linear', 'log'] = 'linear'
    ticks: Mapping[float, str] = dataclasses.field(default_factory=dict)

    def draw(self, axes: typing.Any) -> None:
        """Draw the chart into axes of matplotlib."""
        for index, (label, (across, up)) in enumerate(self.lines.items()):
            axes.plot(across, up, linewidth=0.8, label=label,
                      **({} if self.joined else {
                          'linestyle': '', 'markersize': 4,
                          'marker': _MARKS[index % len(_MARKS)]}))
        axes.set(xlabel=self.across, ylabel=self.up, xscale=self.scale)
        if self.ticks:
            axes.set_xticks(list(self.ticks), list(self.ticks.values()))
        axes.legend(frameon=False)


class Bar(typing.NamedTuple):
    """Interval in a row of a Gantt chart."""

    row: str
    kind: str
    start: float
    end: float


@dataclasses.dataclass(frozen=True)
class GanttChart:
    """Bars in rows, coloured by kind."""

    bars: Sequence[Bar]
    across: str = 'time (s)'
    title: str = ''

    def draw(self, axes: typing.Any) -> None:
        """Draw the chart into axes of matplotlib, the first row on top."""
        rows = {row: number for number, row in enumerate(dict.fromkeys(
            one.row for one in self.bars))}
        kinds = dict.fromkeys(one.kind for one in self.bars)
        for number, kind in enumerate(kinds):
            some = [one for one in self.bars if one.kind == kind]
            axes.barh([rows[one.row] for one in some],
                      [one.end - one.start for one in some],
                      left=[one.start for one in some],
                      color=f'C{number}', label=kind)
        axes.set(xlabel=self.across)
        if len(rows) <= _MOST_LABELS:
            axes.set_yticks(list(rows.values()), list(rows), fontsize=7)
        axes.invert_yaxis()
        axes.legend(frameon=False)


class Drawing(typing.Protocol):
    """Chart of any form."""

    @property
    def title(self) -> str:
        """Title above the chart."""

    def draw(self, axes: typing.Any) -> None:
        """Draw the chart into axes of matplotlib."""


def draw_charts(folder: pathlib.Path, name: str, charts: Sequence[Drawing],
                points: Mapping[str, Mapping[str, float | None]]) -> None:
    """Draw each chart into a file, and the figures into another.

    ``points`` has measured, published and oracle value of each figure.
    """
    try:
        import matplotlib
        matplotlib.use('Agg')
        from matplotlib import pyplot
    except ImportError:
        raise InputError('--plot needs matplotlib: pip install matplotlib, '
                         'or leave it out') from None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise InputError(f'{folder}: {exc.strerror}') from exc
    for number, chart in enumerate(charts, 1):
        shown, axes = pyplot.subplots(figsize=(8, 4), layout='constrained')
        chart.draw(axes)
        axes.set_title(chart.title or name)
        shown.savefig(folder / f'{name}-{number}.png', dpi=120)
        pyplot.close(shown)
    if points:
        shown, axes = pyplot.subplots(figsize=(8, 1 + 0.22 * len(points)))
        _draw_points(axes, points)
        axes.set(xscale='symlog', title=name)
        axes.legend()
        shown.tight_layout()
        shown.savefig(folder / f'{name}-figures.png', dpi=120)
        pyplot.close(shown)


def _draw_points(axes: typing.Any,
                 points: Mapping[str, Mapping[str, float | None]]) -> None:
    for mark, value in (('o', 'measured'), ('x', 'published'),
                        ('|', 'oracle')):
        known = [(one[value], key) for key, one in points.items()
                 if one[value] is not None]
        if known:
            axes.plot(*zip(*known, strict=True), mark, label=value)
