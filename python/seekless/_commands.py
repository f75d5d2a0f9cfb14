"""The commands ``bench``, ``replay``, ``clean`` and ``disk``, as functions."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Type, TypeVar, Union, cast

from seekless import _native
from seekless._errors import SeeklessError
from seekless._policies import Policy
from seekless._progress import Progress, shown
from seekless._tables import Table
from seekless._words import Strings, listed, words

_log = logging.getLogger("seekless")

Told = Tuple[str, str, List[str]]
R = TypeVar("R", bound="Result")


class Result:
    """What a command has found."""

    def __init__(self, value: Any, text: str, notes: List[str]) -> None:
        #: Everything, as the command prints it with ``--json``.
        self.value = value
        #: As the command prints it for people.
        self.text = text
        #: What it had to say besides; also in the log ``seekless``.
        self.notes = notes

    @classmethod
    def of(cls: Type[R], told: Told) -> R:
        value, text, notes = told
        for note in notes:
            _log.info("%s", note)
        return cls(json.loads(value), text, notes)

    def __repr__(self) -> str:
        return self.text


@contextlib.contextmanager
def results_of(kind: Type[Result]) -> Iterator[None]:
    """Makes what failed in part raise with the rest of its results, as an object of this kind."""
    try:
        yield
    except SeeklessError as error:
        if isinstance(error.partial, tuple):
            value, text = error.partial
            error.partial = kind(json.loads(value), text, [])
        raise


class Bench(Result):
    """Measurements of a workload on several stacks."""

    @property
    def phases(self) -> Table:
        """A row for each phase on each stack. Times are in nanoseconds, virtual ones where ``clock`` is ``virtual``."""
        run = ("contestant", "clock")
        rows = (
            {**{name: one[name] for name in run}, "profile": (one["profile"] or {}).get("name"), **phase}
            for one in self.value["runs"]
            for phase in one["phases"]
        )
        return Table.of_rows(rows)

    @property
    def published(self) -> Table:
        """What papers say of such runs, beside what was measured."""
        return Table.of_rows(self.value["published"])

    @property
    def counters(self) -> Table:
        """What each part of a stack has counted over the whole run."""
        rows = (
            {"contestant": one["contestant"], "part": part, "counter": name, "count": count}
            for one in self.value["runs"]
            for part, counters in one["counters"].items()
            for name, count in counters.items()
        )
        return Table.of_rows(rows)


class Replay(Result):
    """Replays of a trace on several stacks."""

    #: Every request on every stack, in the order of the trace; None unless they were asked for.
    requests: Optional[Table] = None

    def _of(self, kind: str) -> List[Dict[str, Any]]:
        return [line[kind] for line in self.value if line["kind"] == kind]

    @property
    def outcomes(self) -> Table:
        """A row for each stack and operation, and one for ``all`` of them."""

        def plain(values: Dict[str, Any]) -> Dict[str, Any]:
            return {name: value for name, value in values.items() if not isinstance(value, (dict, list))}

        rows = (
            {**plain(outcome), "operation": operation, **numbers}
            for outcome in self._of("outcome")
            for operation, numbers in [("all", outcome["all"]), *outcome["operations"].items()]
        )
        return Table.of_rows(rows)

    @property
    def comparison(self) -> Dict[str, Any]:
        """Which stack was fastest, with a sentence about it."""
        return self._of("comparison")[0]

    @property
    def trace(self) -> Dict[str, Any]:
        """How the trace was understood."""
        return cast(Dict[str, Any], [line["import"] for line in self.value if line["kind"] == "trace"][0])


class Cleaning(Result):
    """Simulations of cleaning."""

    @property
    def policies(self) -> Table:
        """A row for each policy."""
        kept = ("policy", "pattern", "knows_future", "blocks", "segment_blocks", "segments", "utilisation", "seed")
        return Table.of_rows({**{name: one[name] for name in kept}, **one["metrics"]} for one in self.value)

    @property
    def distributions(self) -> Table:
        """Shares of the segments by utilisation: of those that there were when cleaning began, and of the cleaned ones."""
        rows = []
        for one in self.value:
            shares = list(zip(one["segments_by_utilisation"], one["cleaned_by_utilisation"]))
            for place, (segments, cleaned) in enumerate(shares):
                middle = (place + 0.5) / len(shares)
                rows.append(
                    {"policy": one["policy"], "utilisation": middle, "segments_share": segments, "cleaned_share": cleaned}
                )
        return Table.of_rows(rows)


def bench(
    workload: str,
    on: Strings,
    *,
    profile: Optional[str] = None,
    clock: Optional[str] = None,
    log: Optional[str] = None,
    seed: Optional[int] = None,
    progress: Union[bool, Progress, None] = None,
    **numbers: Any,
) -> Bench:
    """Runs a workload on stacks, or on directories that begin with ``/`` or ``./``: ``seekless bench``.

    ``numbers`` are those of the workload, such as ``files=200`` or ``file_bytes="1KiB"``.

    Raises UsageError for wrong arguments; SeeklessError when a stack was not measured, with the others in ``partial``.
    """
    options = dict(on=listed(on), profile=profile, clock=clock, log=log, seed=seed, **numbers)
    line = words(["bench", workload], **options)
    with shown(progress) as watch, results_of(Bench):
        return Bench.of(_native.bench(line, watch))


def replay(
    trace: Any,
    on: Strings,
    *,
    timing: Optional[str] = None,
    map: Optional[str] = None,
    devices: Optional[str] = None,
    seed: Optional[int] = None,
    format: Optional[str] = None,
    event: Optional[str] = None,
    device: Optional[Strings] = None,
    sort_window: Optional[int] = None,
    requests: bool = False,
    progress: Union[bool, Progress, None] = None,
) -> Replay:
    """Replays a block trace on modelled storage: ``seekless replay``.

    ``trace`` is a path, several paths that are one trace, or a table with ``__arrow_c_stream__`` whose columns are ``time_ns``
    (or a ``time`` that has its unit in its type), ``operation``, ``offset``, ``bytes``, and, if there are, ``device`` and
    ``latency_ns``. With ``requests=True`` the result has a table of every request on every stack: 80 bytes of memory each.

    Raises UsageError for wrong arguments; SeeklessError when a replay failed, with the others in ``partial``.
    """
    stacks = listed(on)
    is_path = isinstance(trace, (str, os.PathLike)) or isinstance(trace, (list, tuple))
    if not is_path:
        given = dict(format=format, event=event, device=device, sort_window=sort_window)
        for name, value in given.items():
            if value is not None:
                raise TypeError(f"{name}= says how a file is read, and the trace is a table")
    line = words(
        ["replay"],
        listed(trace) if is_path else ["the table"],
        on=stacks,
        timing=timing,
        map=map,
        devices=devices,
        seed=seed,
        format=format,
        event=event,
        device=None if device is None else listed(device),
        sort_window=sort_window,
    )
    with shown(progress) as watch, results_of(Replay):
        told, table = _native.replay(line, None if is_path else trace, stacks if requests else None, watch)
    result = Replay.of(told)
    result.requests = None if table is None else Table(table)
    return result


def clean(
    policies: Union[str, Policy, Sequence[Union[str, Policy]]],
    *,
    pattern: Optional[str] = None,
    blocks: Optional[int] = None,
    segment_blocks: Optional[int] = None,
    utilisation: Optional[float] = None,
    segments: Optional[int] = None,
    batch_blocks: Optional[int] = None,
    reserve_segments: Optional[int] = None,
    target_segments: Optional[int] = None,
    garbage: Optional[float] = None,
    warm_up: Optional[float] = None,
    writes: Optional[float] = None,
    seed: Optional[int] = None,
    progress: Union[bool, Progress, None] = None,
) -> Cleaning:
    """Simulates how a log is cleaned by each of the policies: ``seekless clean``.

    A policy is a name with options, such as ``cost-benefit:age=root``, or an object of a class with the base ``Policy``.
    """
    several = [policies] if isinstance(policies, (str, Policy)) else list(policies)
    options = dict(
        pattern=pattern,
        blocks=blocks,
        segment_blocks=segment_blocks,
        utilisation=utilisation,
        segments=segments,
        batch_blocks=batch_blocks,
        reserve_segments=reserve_segments,
        target_segments=target_segments,
        garbage=garbage,
        warm_up=warm_up,
        writes=writes,
        seed=seed,
    )
    names = [policy for policy in several if isinstance(policy, str)]
    if len(names) == len(several):
        with shown(progress) as watch:
            return Cleaning.of(_native.clean(words(["clean"], names, **options), watch))
    results = [_cleaned_by(policy, options, progress) for policy in several]
    return Cleaning(
        [one for result in results for one in result.value],
        "\n".join(result.text for result in results),
        [note for result in results for note in result.notes],
    )


def _cleaned_by(policy: Any, options: Dict[str, Any], progress: Union[bool, Progress, None]) -> Cleaning:
    with shown(progress) as watch:
        if isinstance(policy, str):
            return Cleaning.of(_native.clean(words(["clean"], [policy], **options), watch))
        name = type(policy).__name__
        # The engine's policy in these words is not used.
        result = Cleaning.of(_native.clean_with(words(["clean"], ["greedy"], **options), name, policy, watch))
    result.text = repr(result.policies)
    return result


def disk(drive: str) -> Dict[str, Any]:
    """The parameters of a drive, by its name, as a drive file, or as ``disk:size=...``: ``seekless disk info --json``."""
    return cast(Dict[str, Any], json.loads(_native.disk(drive)))


def disks() -> Table:
    """The drives of the catalogue: ``seekless disk list``."""
    return Table.of_rows(json.loads(_native.disks()))
