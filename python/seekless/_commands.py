"""The commands ``bench``, ``replay``, ``advise``, ``clean`` and ``disk``, as functions."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Type, TypeVar, Union, cast

from seekless import _native
from seekless._errors import SeeklessError
from seekless._policies import Policy
from seekless._progress import Progress, shown
from seekless._tables import Table
from seekless._words import Strings, listed, words
from seekless._workloads import Workload, parameters

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


class Advice(Result):
    """Which of several storages suits a trace or a workload."""

    #: The answer with its figures, as HTML in one file.
    page: str = ""

    @property
    def candidates(self) -> Table:
        """A row for each candidate; ``problem`` says why one is out of the question."""
        rows = []
        for one in self.value[:-1]:
            figures = {name: value for name, value in one["figures"].items() if name != "phases"}
            busiest = figures.pop("busiest", None) or {"part": None, "share": None}
            service = figures.pop("service", None) or {"part": None, "share": None}
            row = {"name": one["name"], "stack": one["stack"], "price": one["price"], **figures}
            row.update(service=service["part"], service_share=service["share"])
            rows.append({**row, "busiest": busiest["part"], "busy": busiest["share"]})
        return Table.of_rows(rows)

    @property
    def phases(self) -> Table:
        """For a workload, a row for each candidate and each phase."""
        return Table.of_rows(
            {"name": one["name"], **phase} for one in self.value[:-1] for phase in one["figures"].get("phases", [])
        )

    @property
    def fastest(self) -> Optional[str]:
        """The name of the candidate that answers fastest; None when none keeps up."""
        return cast(Optional[str], self.value[-1]["fastest"])

    @property
    def cheapest(self) -> Optional[str]:
        """The cheapest of those that are fast enough; None without prices."""
        return cast(Optional[str], self.value[-1]["cheapest"])

    @property
    def sentences(self) -> List[str]:
        """The answer in words, with how sure it is."""
        return cast(List[str], self.value[-1]["sentences"])


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
    workload: Union[str, Workload],
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

    ``workload`` is a name, with its ``numbers``, such as ``files=200`` or ``bytes="1KiB"``; or an object of a class with the base
    ``Workload``, which has its own.

    Raises UsageError for wrong arguments; SeeklessError when a stack was not measured, with the others in ``partial``.
    """
    options: Dict[str, Any] = dict(on=listed(on), profile=profile, clock=clock, log=log, seed=seed)
    with shown(progress) as watch, results_of(Bench):
        if isinstance(workload, str):
            return Bench.of(_native.bench(words(["bench", workload], **options, **numbers), watch))
        if not isinstance(workload, Workload):
            raise TypeError("a workload is a name, or an object of a class with the base seekless.Workload")
        if numbers:
            raise TypeError(f"{next(iter(numbers))}= is for workloads of the engine; one in Python has attributes")
        name, own = type(workload).__name__, json.dumps(parameters(workload))
        return Bench.of(_native.bench_with(words([], **options), name, own, workload, watch))


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
    read = dict(format=format, event=event, device=device, sort_window=sort_window)
    files, frame = _files(trace, read)
    line = words(["replay"], files, on=stacks, timing=timing, map=map, devices=devices, seed=seed, **read)
    with shown(progress) as watch, results_of(Replay):
        told, table = _native.replay(line, frame, stacks if requests else None, watch)
    result = Replay.of(told)
    result.requests = None if table is None else Table(table)
    return result


def advise(
    trace: Any,
    on: Optional[Strings] = None,
    *,
    within: Optional[str] = None,
    price: Optional[Mapping[str, float]] = None,
    set: Optional[Mapping[str, Union[int, bool, str]]] = None,
    profile: Optional[str] = None,
    map: Optional[str] = None,
    devices: Optional[str] = None,
    format: Optional[str] = None,
    event: Optional[str] = None,
    device: Optional[Strings] = None,
    sort_window: Optional[int] = None,
    progress: Union[bool, Progress, None] = None,
) -> Advice:
    """Asks which storage suits a trace or a workload, by running it on disks, arrays and flash, or on the candidates ``on``:
    ``seekless advise``.

    ``trace`` is as for ``replay``, or the name of a workload, whose numbers are in ``set``: ``{"files": 500}``; ``profile`` is
    the processor that runs it. ``within`` is the time in which 99 of 100 requests are to be answered, or all of a workload done,
    such as ``"20ms"``; ``price`` has the price of one drive by the beginning of its word, such as
    ``{"disk": 85, "ssd:nvme-a": 140}``.

    Raises UsageError for wrong arguments; SeeklessError when the trace cannot be read.
    """
    read = dict(format=format, event=event, device=device, sort_window=sort_window)
    files, frame = _files(trace, read)
    prices = None if price is None else [f"{drive}={value}" for drive, value in price.items()]
    numbers = None if set is None else [f"{key}={_number(value)}" for key, value in set.items()]
    on = None if on is None else listed(on)
    asked = dict(on=on, within=within, price=prices, set=numbers, profile=profile, map=map, devices=devices)
    line = words(["advise"], files, **asked, **read)
    with shown(progress) as watch:
        told, page = _native.advise(line, frame, watch)
    result = Advice.of(told)
    result.page = page
    return result


def _number(value: Union[int, bool, str]) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _files(trace: Any, read: Dict[str, Any]) -> Tuple[List[str], Any]:
    """The files of a trace, or what represents them beside a table. ``read`` says how files are read."""
    if isinstance(trace, (str, os.PathLike, list, tuple)):
        if read["device"] is not None:
            read["device"] = listed(read["device"])
        return listed(trace), None
    for name, value in read.items():
        if value is not None:
            raise TypeError(f"{name}= says how a file is read, and the trace is a table")
    return ["the table"], trace


def clean(
    policies: Union[str, Policy, Sequence[Union[str, Policy]]],
    *,
    pattern: Optional[str] = None,
    format: Optional[str] = None,
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
        format=format,
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
        # Each has read the same trace, and reports the same of it.
        list(dict.fromkeys(note for result in results for note in result.notes)),
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
