"""Workloads in Python, for trying an idea."""

from __future__ import annotations

import inspect
import math
import operator
import os
from types import TracebackType
from typing import Any, Callable, Coroutine, Dict, Generator, Generic, List, NamedTuple, Optional, Tuple, Type, TypeVar, Union

T = TypeVar("T")
Path = Union[str, "os.PathLike[str]"]

#: Numbers of calls are below it.
_LIMIT = 1 << 62


class Workload:
    """A workload for ``seekless.bench``: a program that uses files, in phases that are measured.

    A class with this base has the interface of the engine's own workloads. Its ``run`` is a coroutine, which awaits the calls of a
    target: a file system in virtual time, one in real time, or a directory. Public attributes of the object that are numbers,
    texts or switches are its parameters, which the result has, too. Each call crosses into Python and back, which costs some
    microseconds of real time; virtual time does not notice.
    """

    async def run(self, target: Target) -> None:
        """Runs all phases. What it leaves open is closed at its end; what it leaves behind in a directory of the host, or on a
        file system in real time, is removed."""
        raise NotImplementedError("a workload has `async def run(self, target)`")


class Listed(NamedTuple):
    """A name in a directory."""

    name: str
    is_directory: bool


class Space(NamedTuple):
    """Room for files in bytes, as ``df`` shows it."""

    used: int
    available: int


class _State:
    """What the calls of a run share."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now = 0
        self.pending: Optional[_Call[Any]] = None
        self.phase: Optional[Phase] = None
        #: Work that was done since the last call.
        self.count = 0
        self.bytes = 0


class _Call(Generic[T]):
    """A call that is made when it is awaited."""

    name: str
    arguments: Tuple[Any, ...]

    def __init__(self, state: _State, name: str, arguments: Tuple[Any, ...], made: Callable[[Any], T]) -> None:
        if state.pending is not None:
            raise RuntimeError(f"{state.pending.name}() was not awaited; write `await`, for one call after another")
        self.name = name
        self.arguments = arguments
        self._made = made
        self._state = state
        state.pending = self

    def __await__(self) -> Generator[Any, Any, T]:
        if self._state.pending is not self:
            raise RuntimeError(f"{self.name}() was awaited twice")
        self._state.pending = None
        return self._made((yield self))


class _Opening(_Call["File"]):
    """A call that opens a file; ``async with`` closes it."""

    _file: File

    async def __aenter__(self) -> File:
        self._file = await self
        return self._file

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if not self._file.is_closed and not _is_ending(kind):
            await self._file.close()


class File:
    """An open file."""

    def __init__(self, state: _State, number: int) -> None:
        self._state = state
        self._number = number
        self.is_closed = False

    def write(self, offset: int, data: Any) -> _Call[None]:
        """Writes all of ``data``, which is bytes or has a buffer."""
        data = data if isinstance(data, bytes) else memoryview(data).tobytes()
        return _Call(self._state, "write", (self._number, _number("offset", offset), data), _nothing)

    def read(self, offset: int, bytes: int) -> _Call[bytes]:
        """At most so many bytes from there on; fewer where the file ends."""
        return _Call(self._state, "read", (self._number, _number("offset", offset), _number("bytes", bytes)), _same)

    def fsync(self) -> _Call[None]:
        """Makes the file durable."""
        return _Call(self._state, "fsync", (self._number,), _nothing)

    def close(self) -> _Call[None]:
        self.is_closed = True
        return _Call(self._state, "close", (self._number,), _nothing)


class Phase:
    """A phase of a run: ``async with target.phase("create") as phase``. It is measured from its beginning until everything is
    durable."""

    def __init__(self, state: _State, name: str, unit: str, total: int, durable: bool) -> None:
        self._state = state
        self._begin = (name, unit, total)
        self._durable = durable

    async def __aenter__(self) -> Phase:
        await _Call(self._state, "begin", self._begin, _nothing)
        self._state.phase = self
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if _is_ending(kind):
            return
        # The call that ends the phase takes the last steps with it.
        if kind is None:
            await _Call(self._state, "end", (self._durable,), _nothing)
        else:
            await _Call(self._state, "discard", (), _nothing)
        self._state.phase = None

    def step(self, count: int = 1, bytes: int = 0) -> None:
        """So many more of the phase's unit are done, and so many bytes were read or written."""
        if self._state.phase is not self:
            raise RuntimeError("the phase has ended, or not begun")
        self._state.count += _number("count", count)
        self._state.bytes += _number("bytes", bytes)


class Target:
    """The system calls of a program. Paths are relative to the workload's own directory, with ``/`` between names; ``""`` is the
    directory itself. What fails raises the ``OSError`` that it would raise on a mount."""

    def __init__(self, state: _State, is_log: bool, log: Optional[Target]) -> None:
        self._state = state
        self._is_log = is_log
        #: A place for files on the storage of ``log=``, where that was given.
        self.log = log

    @property
    def now(self) -> int:
        """The time in nanoseconds, when the last call ended."""
        return self._state.now

    @property
    def seed(self) -> int:
        """Decides every choice of the run: ``random.Random(target.seed)``."""
        return self._state.seed

    def phase(self, name: str, unit: str = "files", total: int = 0, durable: bool = True) -> Phase:
        """A phase, for ``async with``, which counts ``files``, ``bytes`` or ``transactions``. ``total`` is how many it will do,
        for the progress. It ends when everything is durable, unless nothing was written (``durable=False``)."""
        return Phase(self._state, name, unit, _number("total", total), durable)

    def mkdir(self, path: Path) -> _Call[None]:
        return self._on("mkdir", path, _nothing)

    def rmdir(self, path: Path) -> _Call[None]:
        return self._on("rmdir", path, _nothing)

    def create(self, path: Path) -> _Opening:
        """Creates a file that is not there yet, and opens it for reading and writing."""
        return self._opening("create", path)

    def open(self, path: Path) -> _Opening:
        """Opens a file for reading."""
        return self._opening("open", path)

    def open_to_write(self, path: Path) -> _Opening:
        """Opens a file for reading and writing."""
        return self._opening("open_to_write", path)

    def stat(self, path: Path) -> _Call[int]:
        """Size of a file in bytes."""
        return self._on("stat", path, _same)

    def list(self, path: Path = "") -> _Call[List[Listed]]:
        """The names in a directory, in its own order."""
        return self._on("list", path, lambda names: [Listed(*one) for one in names])

    def fsync_directory(self, path: Path) -> _Call[None]:
        """Makes the names in a directory durable."""
        return self._on("fsync_directory", path, _nothing)

    def unlink(self, path: Path) -> _Call[None]:
        return self._on("unlink", path, _nothing)

    def rename(self, old: Path, new: Path) -> _Call[None]:
        """Moves a name. A file of the new name is replaced."""
        return _Call(self._state, "rename", (os.fspath(old), os.fspath(new), self._is_log), _nothing)

    def sync(self) -> _Call[None]:
        """Makes everything durable."""
        return _Call(self._state, "sync", (self._is_log,), _nothing)

    def drop_caches(self) -> _Call[None]:
        """Makes the next reads come from the device, as far as possible."""
        return _Call(self._state, "drop_caches", (), _nothing)

    def space(self) -> _Call[Space]:
        return _Call(self._state, "space", (self._is_log,), lambda space: Space(*space))

    def compute(self, ns: int = 0, *, cycles: int = 0) -> _Call[None]:
        """The program computes: for so long on any machine, or so many cycles of the processor of ``profile=``. In real time this
        does nothing."""
        if ns and cycles:
            raise ValueError("either nanoseconds or cycles")
        return _Call(self._state, "compute", (_number("ns", ns), _number("cycles", cycles)), _nothing)

    def _on(self, name: str, path: Path, made: Callable[[Any], T]) -> _Call[T]:
        return _Call(self._state, name, (os.fspath(path), self._is_log), made)

    def _opening(self, name: str, path: Path) -> _Opening:
        return _Opening(self._state, name, (os.fspath(path), self._is_log), lambda number: File(self._state, number))


def _is_ending(kind: Optional[Type[BaseException]]) -> bool:
    """The run is ended from outside, by `close()` or Control-C, perhaps between a call and its ``await``: no more calls are made."""
    return kind is not None and not issubclass(kind, Exception)


def _nothing(value: Any) -> None:
    return None


def _same(value: Any) -> Any:
    return value


def _number(name: str, value: int) -> int:
    number = operator.index(value)
    if not 0 <= number < _LIMIT:
        raise ValueError(f"{name}: {number} is not from 0 to 2^62")
    return number


def parameters(workload: Workload) -> Dict[str, Any]:
    """What a result says of its workload."""
    kinds = (bool, int, float, str)
    public = {name: value for name, value in vars(workload).items() if not name.startswith("_") and isinstance(value, kinds)}
    return {name: value for name, value in public.items() if not isinstance(value, float) or math.isfinite(value)}


#: A call with its arguments, and the work that was done since the one before: a count, and bytes.
Next = Tuple[str, Tuple[Any, ...], int, int]


class Run:
    """A run under way: the engine sends each answer, and gets the next call."""

    def __init__(self, workload: Workload, seed: int, has_log: bool) -> None:
        self._state = _State(seed)
        log = Target(self._state, True, None) if has_log else None
        coroutine: Coroutine[Any, Any, None] = workload.run(Target(self._state, False, log))
        if not inspect.iscoroutine(coroutine):
            raise TypeError("run() of a workload is a coroutine: `async def run(self, target)`")
        self._coroutine = coroutine
        self._thrown: Optional[BaseException] = None

    def next(self, value: Any, failure: Optional[BaseException], now: int) -> Union[Next, str, None]:
        """The next call; None at the end; a text for an error of the target that the workload has not handled."""
        state = self._state
        state.now = now
        try:
            if failure is None:
                call = self._coroutine.send(value)
            else:
                self._thrown = failure
                call = self._coroutine.throw(failure)
        except StopIteration:
            if state.pending is not None:
                raise RuntimeError(f"{state.pending.name}() was not awaited") from None
            return None
        except OSError as error:
            if error is self._thrown:
                return error.strerror or str(error)
            raise
        if not isinstance(call, _Call):
            raise RuntimeError(f"{call!r} is no call of the target: a workload awaits nothing else, and there is no event loop")
        count, state.count, bytes, state.bytes = state.count, 0, state.bytes, 0
        return call.name, call.arguments, count, bytes

    def close(self) -> None:
        self._coroutine.close()
