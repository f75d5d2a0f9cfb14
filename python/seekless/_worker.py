"""What a worker of an executor does: it makes the plan once, and measures the points that it is given."""

from __future__ import annotations

import threading
import time
from typing import Dict, List, Optional, Tuple

from seekless import _native
from seekless._errors import SeeklessError

#: A point: its place in the plan, its key, which covers everything that its result depends on, and its name.
Point = Tuple[int, str, str]
#: What is wrong, or the result and how long it took.
Measured = Tuple[Optional[str], str, float]

Line = Tuple[Tuple[str, ...], Optional[str]]

#: Plans that are in use: the newest of each experiment.
_studies: Dict[Line, _native.Study] = {}
_STUDIES_MAX = 4
#: Threads of one process share a plan, which is made once.
_lock = threading.Lock()


def library() -> str:
    """The file of the engine. Results of another build are not reused."""
    path = _native.__file__
    assert path is not None  # It is an extension, which is a file.
    return path


def _study(line: List[str], share: Optional[str], points: List[Point]) -> _native.Study:
    key = (tuple(line), share)
    with _lock:
        known = _studies.get(key)
        # Where the files of the experiment were changed since this process made its plan, the points are of a newer one.
        if known is None or not all(map(known.has, points)):
            _studies.pop(key, None)
            while len(_studies) >= _STUDIES_MAX:
                _studies.pop(next(iter(_studies)))
            known = _studies[key] = _native.Study(line, library(), share)
        return known


def measure(line: List[str], share: Optional[str], points: List[Point]) -> List[Measured]:
    """Measures points of the experiment of these words. A point that fails leaves the others their results."""
    study = _study(line, share, points)
    results: List[Measured] = []
    for point in points:
        start = time.monotonic()
        try:
            measures = study.measure(point)
        except SeeklessError as error:
            results.append((error.text, "", 0.0))
        else:
            results.append((None, measures, time.monotonic() - start))
    return results


def stop(line: List[str], share: Optional[str]) -> None:
    """Ends what threads of this process measure. The plan is not used again."""
    with _lock:
        study = _studies.pop((tuple(line), share), None)
    if study is not None:
        study.stop()
