"""Experiments: ``seekless run``, also with the processes of other libraries."""

from __future__ import annotations

import concurrent.futures
import json
import os
import sysconfig
from typing import Any, Dict, List, Optional, Union, cast

from seekless import _native, _worker
from seekless._commands import Result, results_of
from seekless._errors import SeeklessError
from seekless._figures import Figure
from seekless._progress import Progress, shown
from seekless._tables import Table
from seekless._words import words


class Results(Result):
    """What is in a folder of results."""

    @property
    def folder(self) -> str:
        return cast(str, self.value["folder"])

    @property
    def rows(self) -> Table:
        """What was measured: a column for each dimension and each metric, as in ``rows.csv``."""
        return Table.of_rows({**row["dims"], **row["metrics"]} for row in self.value["rows"])

    @property
    def claims(self) -> Table:
        """What the paper claims, and whether it comes out: ``verdict`` is holds, differs or open."""
        rows = (
            {
                "verdict": claim["verdict"],
                "claim": claim["claim"]["text"],
                "source": claim["claim"]["source"],
                "required": claim["required"],
                "found": claim["found"],
                "held": claim["held"],
                "cases": claim["cases"],
            }
            for claim in self.value["claims"]
        )
        return Table.of_rows(rows)

    @property
    def published(self) -> Table:
        """Published figures, each with what was measured."""
        rows = (
            {
                **one["published"]["dims"],
                "metric": one["published"]["metric"],
                "published": one["published"]["value"],
                "measured": one["measured"],
                "deviation": one["deviation"],
                "source": one["published"]["source"],
            }
            for one in self.value["published"]
        )
        return Table.of_rows(rows)

    @property
    def figures(self) -> Dict[str, Figure]:
        """The figures, by their names in the experiment."""
        made = [Figure(one["drawing"], one["svg"]) for one in self.value["figures"]]
        return {figure.id: figure for figure in made}

    @property
    def provenance(self) -> Dict[str, Any]:
        """Which program measured when and where."""
        return cast(Dict[str, Any], self.value["provenance"])


def results(folder: Union[str, "os.PathLike[str]"]) -> Results:
    """Reads a folder that ``seekless run`` has written, here or elsewhere, with any version."""
    return Results.of(_native.results(os.fspath(folder)))


def run(
    experiment: Union[str, "os.PathLike[str]"],
    *,
    over: Optional[str] = None,
    quick: bool = False,
    out: Union[str, "os.PathLike[str]", None] = None,
    shard: Optional[str] = None,
    costs: Union[str, "os.PathLike[str]", None] = None,
    rounds: Optional[int] = None,
    jobs: Optional[int] = None,
    executor: Optional[concurrent.futures.Executor] = None,
    batch: int = 1,
    progress: Union[bool, Progress, None] = None,
) -> Results:
    """Measures the points of an experiment that are not measured yet, and checks what it claims: ``seekless run``.

    ``experiment`` is its folder, or the name of one that came with the package. Results go to ``results/NAME`` unless ``out``
    says otherwise; a call that was interrupted continues where it was.

    With an ``executor`` its workers measure what is simulated, ``batch`` points at a time; they need this package and the
    experiment's folder. What takes real time is measured in this process. The rows are those of one process.

    Raises UsageError for wrong arguments; SeeklessError when a point failed, with the others in ``partial``.
    """
    if batch < 1:
        raise ValueError(f"a batch has at least one point, not {batch}")
    folder = os.fspath(experiment)
    # A worker may have another current directory.
    folder = os.path.abspath(folder) if os.path.exists(folder) else folder
    options = dict(over=over, quick=quick, out=out, shard=shard, costs=costs, rounds=rounds, jobs=jobs)
    line = words(["run"], [folder], **options)
    study = _native.OpenStudy(line, _worker.library(), share())
    with shown(progress) as watch, results_of(Results):
        try:
            if executor is not None:
                _measure(study, line, executor, batch, watch)
            return Results.of(study.finish(watch))
        except BaseException:
            study.close()
            raise


def share() -> Optional[str]:
    """The folder of the experiments and samples that came with the package; None where there is none."""
    folder = os.path.join(sysconfig.get_path("data"), "share", "seekless")
    return folder if os.path.isdir(folder) else None


def _measure(
    study: _native.OpenStudy,
    line: List[str],
    executor: concurrent.futures.Executor,
    batch: int,
    watch: Optional[Progress],
) -> None:
    """Has the executor measure the points, and keeps each as it comes."""
    tasks = study.tasks()
    waiting: Dict[concurrent.futures.Future[List[_worker.Measured]], List[_worker.Point]] = {}
    done = 0
    try:
        for first in range(0, len(tasks), batch):
            some = tasks[first : first + batch]
            waiting[executor.submit(_worker.measure, line, share(), some)] = some
        while waiting:
            # Now and then, so that a signal is noticed and the caller sees that something goes on.
            ended, _ = concurrent.futures.wait(waiting, timeout=0.2, return_when=concurrent.futures.FIRST_COMPLETED)
            lost: Optional[BaseException] = None
            for future in ended:
                some = waiting.pop(future)
                lost = lost or future.exception()
                done += _keep_all(study, some, future)
            if lost is not None:
                raise lost
            if watch is not None:
                watch("points", done, len(tasks))
    except BaseException:
        for future in waiting:
            future.cancel()
        _worker.stop(line, share())
        _keep(study)
        raise


def _keep_all(
    study: _native.OpenStudy,
    some: List[_worker.Point],
    future: concurrent.futures.Future[List[_worker.Measured]],
) -> int:
    """Keeps what a task has measured, if it was not lost; returns how many points that were."""
    if future.exception() is not None:
        return 0
    for task, (problem, measures, seconds) in zip(some, future.result()):
        if problem is None:
            study.add(task, measures, seconds)
        else:
            study.add_failure(task, problem)
    return len(some)


def _keep(study: _native.OpenStudy) -> None:
    """Writes the rows that there are. What has gone wrong before is the more important."""
    try:
        study.write()
    except SeeklessError:
        pass
