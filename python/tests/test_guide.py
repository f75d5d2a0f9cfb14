"""The examples of the guide run as they are written, one after another."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
from conftest import SMALL, scheduler

import seekless

ROOT = pathlib.Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs/guide/python.md"
SWEEPS = ROOT / "docs/guide/sweeps.md"


def blocks(page):
    """The blocks of Python in a page, each with the number of its line."""
    found, block = [], None
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if block is None and line == "```python":
            block = (number + 1, [])
        elif block is not None and line == "```":
            found.append((block[0], "\n".join(block[1]) + "\n"))
            block = None
        elif block is not None:
            block[1].append(line)
    return found


def put_project(desk):
    for folder in ("docs", "experiments"):
        (desk / folder).symlink_to(ROOT / folder)


def test_examples_of_the_guide(desk, capsys):
    for library in ("duckdb", "polars", "pyarrow", "pandas"):
        pytest.importorskip(library)
    put_project(desk)
    examples = blocks(GUIDE)
    assert len(examples) > 5
    names = {"__name__": "guide"}
    for line, text in examples:
        # With the place of the example, so that an error says where it is.
        exec(compile("\n" * (line - 1) + text, str(GUIDE), "exec"), names)
    printed = capsys.readouterr().out
    assert "^" in printed and "create" in printed
    assert len(names["requests"]) == 2 * names["replay"].outcomes["requests"][0]


#: Points that take a while each, so that there is a worker to kill.
SLOWER = """
title = "Slower"
workload = { kind = "requests", pattern = "random", operation = "read", bytes = "4KiB", span = "64MiB", requests = 40000, timing = "window:4" }
contestant = [{ name = "array", on = "raid0:n={n} / disk:cheetah9lp,scheduler=sptf" }]
variables.n.values = [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]
"""

#: A result of another build.
STALE = '{"key":"0123","measures":[],"program":"0123456789ab"}\n'


def put_recipe(desk, number, experiment):
    """A recipe of the page in Python, as it is written, on another experiment of the same name."""
    _, text = blocks(SWEEPS)[number]
    for library in ("dask.distributed", "ray"):
        if library in text:
            scheduler(library)
    folder = desk / "experiments/ro92-fig4"
    folder.mkdir(parents=True)
    (folder / "experiment.toml").write_text(experiment)
    (desk / "recipe.py").write_text(text)
    return text


def check_rows_of_one_process(desk):
    seekless.run("experiments/ro92-fig4", out="alone")
    for name in ("rows.jsonl", "rows.csv", "resolved.toml"):
        assert (desk / "alone" / name).read_bytes() == (desk / "results/ro92-fig4" / name).read_bytes()


RECIPES = range(len(blocks(SWEEPS)))


@pytest.mark.parametrize("number", RECIPES)
def test_recipes_give_the_rows_of_one_process(desk, number):
    """Each recipe of the page in Python, on a small experiment of the same name, in a process of its own."""
    put_recipe(desk, number, SMALL)
    done = subprocess.run([sys.executable, "recipe.py"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    check_rows_of_one_process(desk)


@pytest.mark.parametrize("number", RECIPES)
def test_recipes_survive_a_killed_worker(desk, number):
    """A worker that gets SIGKILL while it measures does no harm, and what another build has measured is kept and not used.
    Dask and Ray measure its points elsewhere. A pool of Python is lost with its worker: there the recipe is called again,
    and what is measured is kept."""
    text = put_recipe(desk, number, SLOWER)
    journal = desk / "results/ro92-fig4/points.jsonl"
    journal.parent.mkdir(parents=True)
    journal.write_text(STALE)
    with open(desk / "printed", "w") as printed:
        recipe = subprocess.Popen([sys.executable, "recipe.py"], stdout=printed, stderr=subprocess.STDOUT)
    try:
        # In the middle: some points are measured, and others are not.
        end = time.monotonic() + 200
        while not 2 <= len(journal.read_text().splitlines()) < 14:
            assert recipe.poll() is None and time.monotonic() < end, (desk / "printed").read_text()
            time.sleep(0.01)
        os.kill(max(workers(recipe.pid), key=processor_time), signal.SIGKILL)
        recipe.wait(timeout=200)
    finally:
        recipe.kill()
        recipe.wait()
    if "ProcessPoolExecutor" in text:
        assert recipe.returncode != 0 and "BrokenProcessPool" in (desk / "printed").read_text()
        done = subprocess.run([sys.executable, "recipe.py"], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
    else:
        assert recipe.returncode == 0, (desk / "printed").read_text()
    assert journal.read_text().startswith(STALE)
    # No point is there twice.
    assert len(journal.read_text().splitlines()) == 1 + 16
    check_rows_of_one_process(desk)


def workers(parent):
    """The processes below `parent` that have the engine in memory."""
    children = {}
    for entry in pathlib.Path("/proc").iterdir():
        try:
            child, above = int(entry.name), int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        children.setdefault(above, []).append(child)
    found, look = [], [parent]
    while look:
        for child in children.get(look.pop(), ()):
            look.append(child)
            try:
                if "seekless/_native" in pathlib.Path(f"/proc/{child}/maps").read_text():
                    found.append(child)
            except OSError:
                pass
    return found


def processor_time(process):
    fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11])
