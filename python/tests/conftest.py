"""What the tests share."""

import importlib
import os
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def scheduler(library):
    """The module of what runs sweeps. Skips the test where it is missing, unless SEEKLESS_REQUIRE demands it."""
    wanted = os.environ.get("SEEKLESS_REQUIRE", "").split(",")
    if {"all", "schedulers"} & {word.strip() for word in wanted}:
        return importlib.import_module(library)
    return pytest.importorskip(library)


TRACE = ROOT / "docs/samples/shop.trace"

#: A small experiment: 20 points in virtual time.
SMALL = """
title = "Small"
workload = { kind = "requests", pattern = "random", operation = "read", bytes = "4KiB", span = "64MiB", requests = "{n}", timing = "closed" }
contestant = [{ name = "one", on = "disk:cheetah9lp" }, { name = "other", on = "disk:hp97560" }]
variables.n.values = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]

[[figure]]
id = "reads"
title = "Reads"
x = "n"
y = "requests_per_s"
colour = "contestant"

[[claim]]
text = "A newer disk is faster."
source = "this test"
metric = "requests_per_s"
test = "compare"
of = { contestant = "one" }
to = { contestant = "other" }
above = 1.0
"""


@pytest.fixture(autouse=True)
def desk(tmp_path, monkeypatch):
    """An empty current directory for each test."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


@pytest.fixture
def trace():
    return os.fspath(TRACE)


@pytest.fixture
def small(desk):
    """The folder of the small experiment."""
    folder = desk / "small"
    folder.mkdir()
    (folder / "experiment.toml").write_text(SMALL)
    return folder
