"""While a command runs: other threads run, signals end it, and its caller sees how far it is."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import seekless

LONG = dict(blocks=100_000, segment_blocks=64, writes=2000.0)


def test_other_threads_run():
    """The interpreter's lock is released. Method: a thread counts while a simulation runs."""
    counted, done = [0], threading.Event()

    def count():
        while not done.is_set():
            counted[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    start = time.monotonic()
    seekless.clean("greedy", blocks=50_000, segment_blocks=64, writes=20.0)
    took = time.monotonic() - start
    done.set()
    thread.join()
    assert counted[0] > took * 50, (counted, took)


def test_progress():
    """The caller learns what is under way, and the numbers rise."""
    seen = []
    seekless.clean("greedy", blocks=100_000, segment_blocks=64, writes=20.0, progress=lambda *step: seen.append(step))
    assert seen and {what.split(":")[0] for what, _, _ in seen} == {"greedy"}
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert all(total and 0 <= done <= total for _, done, total in seen)


def test_progress_can_end_a_command(small):
    """What the progress function raises comes out, whichever command it is."""

    class Enough(Exception):
        pass

    def enough(what, done, total):
        raise Enough(what)

    endless = dict(time_ns=range(10_000_000))
    pa = pytest.importorskip("pyarrow")
    count = len(endless["time_ns"])
    trace = pa.table(
        {"time_ns": pa.array(range(count)), "op": ["R"] * count, "offset": [0] * count, "bytes": [512] * count}
    )
    calls = [
        lambda: seekless.clean("greedy", **LONG, progress=enough),
        lambda: seekless.bench("smallfile", on="lfs / disk:dec-rz26", files=100_000, progress=enough),
        lambda: seekless.replay(trace, on="disk:cheetah9lp", progress=enough),
        lambda: seekless.advise(trace, on="disk:cheetah9lp", progress=enough),
        lambda: seekless.run(small, progress=enough),
    ]
    for call in calls:
        start = time.monotonic()
        with pytest.raises(Enough):
            call()
        assert time.monotonic() - start < 20
    assert len(seekless.run(small).rows) == 20, "a run that was ended continues"


@pytest.mark.parametrize(
    "call",
    [
        "seekless.clean('greedy', blocks=100_000, segment_blocks=64, writes=40000.0)",
        "seekless.bench('smallfile', on='lfs / disk:nearline-4tb', files=5_000_000)",
        "seekless.bench(Endless(), on='memfs')",
        "seekless.bench(Spinning(), on='memfs')",
        "seekless.run('long')",
        "seekless.run('long', executor=concurrent.futures.ThreadPoolExecutor(2))",
    ],
)
def test_control_c(desk, call):
    """SIGINT ends a command with KeyboardInterrupt, and the process is alive afterwards."""
    long = desk / "long"
    long.mkdir()
    (long / "experiment.toml").write_text(
        """
        title = "Long"
        workload = { kind = "requests", pattern = "random", operation = "read", bytes = "4KiB", span = "64MiB", requests = 1000000000, timing = "closed" }
        contestant = [{ name = "one", on = "disk:cheetah9lp" }, { name = "other", on = "disk:hp97560" }]
        """
    )
    script = f"""
        import concurrent.futures, seekless

        class Endless(seekless.Workload):
            async def run(self, target):
                async with target.phase("one"):
                    while True:
                        await target.sync()

        class Spinning(seekless.Workload):
            async def run(self, target):
                await target.mkdir("d")
                while True:
                    pass

        print("ready", flush=True)
        try:
            {call}
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            print(seekless.disk("cheetah9lp")["name"], flush=True)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    time.sleep(1.5)
    start = time.monotonic()
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (out, process.returncode) == ("interrupted\ncheetah9lp\n", 0), err
    assert time.monotonic() - start < 10


def test_threads_may_call_at_once():
    """Commands on several threads do not disturb each other."""
    results = {}

    def bench(seed):
        bench = seekless.bench("smallfile", on="lfs / disk:dec-rz26", files=50, seed=seed)
        results[seed] = list(bench.phases)

    threads = [threading.Thread(target=bench, args=(seed,)) for seed in (1, 2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in results:
        assert results[seed] == list(seekless.bench("smallfile", on="lfs / disk:dec-rz26", files=50, seed=seed).phases)
