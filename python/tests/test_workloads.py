"""Workloads in Python: they get what the engine's own get, and their mistakes end in exceptions."""

import asyncio
import errno
import random
import time

import pytest

import seekless


class SmallFile(seekless.Workload):
    """The engine's workload of the same name, once more."""

    def __init__(self, files, bytes=1024):
        self.files = files
        self.bytes = bytes

    def path(self, number):
        return f"d{number // 100:05}/f{number:07}"

    async def run(self, target):
        data = random.Random(target.seed).randbytes(self.bytes)
        async with target.phase("create", total=self.files) as phase:
            for number in range(self.files):
                if number % 100 == 0:
                    await target.mkdir(f"d{number // 100:05}")
                async with target.create(self.path(number)) as file:
                    await file.write(0, data)
                phase.step(bytes=self.bytes)
        await target.drop_caches()
        async with target.phase("read", total=self.files, durable=False) as phase:
            for number in range(self.files):
                async with target.open(self.path(number)) as file:
                    assert await file.read(0, self.bytes) == data
                phase.step(bytes=self.bytes)
        async with target.phase("delete", total=self.files) as phase:
            for number in range(self.files):
                await target.unlink(self.path(number))
                if (number + 1) % 100 == 0 or number + 1 == self.files:
                    await target.rmdir(f"d{number // 100:05}")
                phase.step()


def run(function, on="lfs / disk:dec-rz26", **options):
    """What comes of a workload that is one function."""

    class Own(seekless.Workload):
        async def run(self, target):
            await function(target)

    return seekless.bench(Own(), on=on, **options)


@pytest.mark.parametrize("stack", ["lfs / disk:dec-rz26", "wrap / ffs / disk:cheetah9lp", "memfs"])
def test_a_workload_measures_what_the_engine_measures(stack):
    """The same calls take the same virtual time, to the nanosecond, and are counted in the same way."""
    options = dict(on=stack, profile="sparcstation2", seed=3)
    engine, own = seekless.bench("smallfile", files=150, **options), seekless.bench(SmallFile(150), **options)
    assert list(own.phases) == list(engine.phases)
    assert own.value["benchmark"] == "SmallFile" and own.value["spec"] == {"bytes": 1024, "files": 150, "seed": 3}
    assert "SmallFile" in repr(own) and len(own.published) == 0


def test_in_real_time(desk):
    """A directory and an image; nothing is left in the directory, also of what the workload has left."""

    async def leaves(target):
        async with target.phase("create") as phase:
            await target.mkdir("d")
            async with target.create("d/left") as file:
                await file.write(0, b"x")
            phase.step(1, 1)

    bench = run(leaves, on=["./", "lfs / memory:64MiB", "wrap / memfs"], clock="real")
    assert [row["count"] for row in bench.phases] == [1, 1, 1] and {row["clock"] for row in bench.phases} == {"real"}
    assert list(desk.iterdir()) == []


def test_everything_a_target_has():
    async def everything(target):
        assert target.seed == 7 and target.log is None
        async with target.phase("all", unit="transactions", total=1) as phase:
            begun = target.now
            await target.mkdir("d")
            async with target.create("d/a") as file:
                await file.write(4, bytearray(b"text"))
                await file.write(8, memoryview(b"more"))
                assert await file.read(2, 100) == b"\0\0textmore"
                await file.fsync()
            assert file.is_closed and target.now > begun
            await target.fsync_directory("d")
            await target.rename("d/a", "b")
            assert await target.stat("b") == 12
            assert sorted(await target.list()) == [("b", False), ("d", True)]
            file = await target.open_to_write("b")
            await file.close()
            before = await target.space()
            assert before.used > 0 and before.available > 0
            now = target.now
            await target.compute(5_000_000)
            assert target.now == now + 5_000_000
            await target.compute(cycles=1_000_000)
            assert target.now > now + 5_000_000
            await target.sync()
            phase.step()

    (row,) = run(everything, seed=7, profile="sparcstation2").phases
    assert (row["unit"], row["count"], row["per_second"] > 0) == ("transactions", 1, True)


def test_a_log_on_other_storage():
    async def logs(target):
        async with target.phase("log") as phase, target.log.create("log") as log, target.create("data") as data:
            await log.write(0, b"x" * 4096)
            await log.fsync()
            await data.write(0, b"x")
            assert [one.name for one in await target.log.list()] == ["log"]
            assert [one.name for one in await target.list()] == ["data"]
            phase.step()

    assert len(run(logs, log="lfs / disk:cheetah9lp").phases) == 1


def test_errors_of_the_target_are_those_of_a_mount():
    async def stumbles(target):
        async with target.phase("one") as phase:
            await target.mkdir("d")
            with pytest.raises(FileExistsError):
                await target.mkdir("d")
            with pytest.raises(FileNotFoundError) as error:
                await target.open("nothing")
            assert error.value.errno == errno.ENOENT and "nothing" in str(error.value)
            with pytest.raises(NotADirectoryError):
                async with target.create("f"):
                    await target.create("f/g")
            for path in ("../f", "/f", "d//f"):
                with pytest.raises(ValueError, match="relative"):
                    await target.create(path)
            phase.step()

    assert len(run(stumbles).phases) == 1


def test_a_full_stack_leaves_the_others_their_results():
    """An OSError of the target that is not handled: the stack has no result, and says why."""

    async def fills(target):
        async with target.phase("fill") as phase:
            for number in range(2000):
                async with target.create(f"f{number}") as file:
                    await file.write(0, bytes(16 << 10))
                phase.step()

    with pytest.raises(seekless.SeeklessError, match="lfs / memory:9MiB was not measured: .*no space left") as error:
        run(fills, on=["lfs / memory:9MiB", "lfs / memory:200MiB"])
    assert [row["contestant"] for row in error.value.partial.phases] == ["lfs / memory:200MiB"]


def test_other_exceptions_come_out():
    """With the traceback of the workload; no other stack is measured."""
    seen = []

    async def fails(target):
        seen.append(target)
        async with target.phase("one"):
            await target.mkdir("d")
            raise ZeroDivisionError("of the workload")

    with pytest.raises(ZeroDivisionError, match="of the workload") as error:
        run(fails, on=["memfs", "lfs / disk:dec-rz26"])
    assert len(seen) == 1 and "fails" in [entry.name for entry in error.traceback]

    async def opens(target):
        open("/no/such/file")

    with pytest.raises(FileNotFoundError, match="/no/such/file"):
        run(opens)


async def _forgets(target):
    async with target.phase("one"):
        target.mkdir("d")
        await target.mkdir("e")


async def _forgets_the_last(target):
    async with target.phase("one"):
        pass
    target.mkdir("d")


async def _sleeps(target):
    await asyncio.sleep(1)


async def _gathers(target):
    await asyncio.gather(target.mkdir("a"), target.mkdir("b"))


async def _steps_outside(target):
    async with target.phase("one") as phase:
        pass
    phase.step()


async def _nests(target):
    async with target.phase("one"):
        async with target.phase("two"):
            pass


async def _closes_twice(target):
    async with target.phase("one"):
        file = await target.create("f")
        await file.close()
        await file.write(0, b"x")


async def _writes_text(target):
    async with target.phase("one"), target.create("f") as file:
        await file.write(0, "text")


async def _negative(target):
    async with target.phase("one"), target.create("f") as file:
        await file.write(-1, b"x")


async def _unit(target):
    async with target.phase("one", unit="apples"):
        pass


@pytest.mark.parametrize(
    "function, kind, said",
    [
        (_forgets, RuntimeError, r"mkdir\(\) was not awaited"),
        (_forgets_the_last, RuntimeError, r"mkdir\(\) was not awaited"),
        (_sleeps, RuntimeError, "event loop"),
        (_gathers, RuntimeError, "was not awaited; write `await`"),
        (_steps_outside, RuntimeError, "the phase has ended"),
        (_nests, ValueError, "`one` has not ended"),
        (_closes_twice, ValueError, "the file is closed"),
        (_writes_text, TypeError, "a bytes-like object is required"),
        (_negative, ValueError, "offset: -1"),
        (_unit, ValueError, "apples"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_mistakes_are_explained(function, kind, said):
    with pytest.raises(kind, match=said):
        run(function)


def test_wrong_workloads():
    class NoCoroutine(seekless.Workload):
        def run(self, target):
            pass

    with pytest.raises(TypeError, match="async def run"):
        seekless.bench(NoCoroutine(), on="memfs")
    with pytest.raises(NotImplementedError, match="async def run"):
        seekless.bench(seekless.Workload(), on="memfs")
    with pytest.raises(TypeError, match="seekless.Workload"):
        seekless.bench(object(), on="memfs")
    with pytest.raises(TypeError, match="files= is for workloads of the engine"):
        seekless.bench(SmallFile(10), on="memfs", files=5)
    with pytest.raises(seekless.UsageError) as error:
        seekless.bench(SmallFile(10), on="lfs / dsk:dec-rz26")
    assert "^" in str(error.value)

    async def nothing(target):
        await target.mkdir("d")

    with pytest.raises(seekless.SeeklessError, match="it has no phase"):
        run(nothing)


async def _syncs(target):
    while True:
        await target.sync()


async def _computes_nothing(target):
    while True:
        await target.compute(cycles=1)


async def _begins_phases(target):
    while True:
        async with target.phase("one", durable=False):
            pass


@pytest.mark.parametrize("function", [_syncs, _computes_nothing, _begins_phases])
def test_a_workload_that_does_not_end_can_be_ended(function):
    """The progress is asked between phases, too; and a call that takes no time is progress for the engine."""
    started = time.monotonic()

    def patience(what, done, total):
        if time.monotonic() - started > 2:
            raise TimeoutError("long enough")

    with pytest.raises(TimeoutError, match="long enough"):
        run(function, on="memfs", progress=patience)


def test_progress():
    seen = []
    seekless.bench(SmallFile(30_000), on="lfs / disk:dec-rz26", progress=lambda *step: seen.append(step))
    assert seen and all(what.startswith("[1/1] ") for what, _, _ in seen)
    assert seen[0] == ("[1/1] lfs / disk:dec-rz26", 0, None)  # Before its first phase.
    assert {total for what, _, total in seen[1:] if "between" not in what} == {30_000}


def test_an_interrupt_between_a_call_and_its_await():
    """Control-C may come anywhere: what leaves a phase and a file then makes no calls of its own."""

    async def in_phase(target):
        async with target.phase("one"):
            target.sync()
            raise KeyboardInterrupt

    async def in_file(target):
        async with target.create("a") as file:
            file.write(0, b"1")
            raise KeyboardInterrupt

    for function in (in_phase, in_file):
        with pytest.raises(KeyboardInterrupt):
            run(function)
