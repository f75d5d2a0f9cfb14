"""File systems and storage on a test bench: benchmarks, replays of block traces and experiments, in virtual time.

Each function is a command of the program ``seekless``, with the same stack lines and the same options::

    import seekless

    bench = seekless.bench("smallfile", on=["lfs / disk:dec-rz26", "ffs / disk:dec-rz26"], files=200)
    bench.phases                      # an Arrow table, for pandas, Polars, DuckDB and PyArrow without a copy

The guide is docs/guide/python.md of the project.
"""

from seekless import _native
from seekless._commands import Advice, Bench, Cleaning, Replay, advise, bench, clean, disk, disks, replay
from seekless._errors import Interrupted, SeeklessError, UsageError
from seekless._experiments import Results, results, run
from seekless._figures import Figure
from seekless._policies import Policy
from seekless._progress import Bar
from seekless._tables import Table
from seekless._workloads import File, Phase, Target, Workload

__version__: str = _native.version()

__all__ = [
    "Advice",
    "Bar",
    "Bench",
    "Cleaning",
    "Figure",
    "File",
    "Interrupted",
    "Phase",
    "Policy",
    "Replay",
    "Results",
    "SeeklessError",
    "Table",
    "Target",
    "UsageError",
    "Workload",
    "advise",
    "bench",
    "clean",
    "disk",
    "disks",
    "replay",
    "results",
    "run",
]
