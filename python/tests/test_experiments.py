"""Experiments: in this process, with the workers of an executor, and what comes of them."""

import concurrent.futures
import json
import multiprocessing
import pathlib
import signal

import pytest
from conftest import scheduler

import seekless
from seekless import _worker


def files(folder):
    """The files of results that do not depend on when and how they were made."""
    return {name: (pathlib.Path(folder) / name).read_bytes() for name in ("rows.jsonl", "rows.csv", "resolved.toml")}


def test_a_run(small):
    result = seekless.run(small)
    assert len(result.rows) == 20 and set(result.rows["contestant"]) == {"one", "other"}
    (claim,) = result.claims
    assert claim["verdict"] == "holds", claim
    assert result.folder == "results/small" and result.provenance["points_measured"] == 20
    assert seekless.results("results/small").value == result.value
    again = seekless.run(small)
    assert again.provenance["points_measured"] == 0 and list(again.rows) == list(result.rows)
    assert any("already measured" in note for note in again.notes) or again.notes == []


def spawned():
    return concurrent.futures.ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"))


def forked():
    return concurrent.futures.ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork"))


def threads():
    return concurrent.futures.ThreadPoolExecutor(3)


@pytest.mark.parametrize("make", [threads, spawned, forked])
@pytest.mark.parametrize("batch", [1, 7])
def test_executors_give_the_rows_of_one_process(small, make, batch):
    seekless.run(small, out="alone")
    seen = []
    with make() as executor:
        result = seekless.run(small, out="shared", executor=executor, batch=batch, progress=lambda *step: seen.append(step))
    assert files("alone") == files("shared")
    assert result.provenance["points_measured"] == 20 and seen[-1][1:] == (20, 20)


def test_dask_gives_the_rows_of_one_process(small):
    """A client of Dask is an executor."""
    distributed = scheduler("dask.distributed")
    seekless.run(small, out="alone")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        with distributed.Client(cluster) as client:
            seekless.run(small, out="shared", executor=client.get_executor(), batch=4)
    assert files("alone") == files("shared")


def test_shards_and_quick(small):
    for shard in ("1/2", "2/2"):
        seekless.run(small, shard=shard)
    first, second = (len(seekless.results(f"results/small.{shard}-of-2").rows) for shard in (1, 2))
    assert first + second == 20 and min(first, second) > 0


class Killing(concurrent.futures.Executor):
    """Loses every third call, as a worker does that is killed."""

    def __init__(self):
        self.count = 0

    def submit(self, function, *arguments):
        future = concurrent.futures.Future()
        self.count += 1
        if self.count % 3 == 0:
            future.set_exception(concurrent.futures.process.BrokenProcessPool("a worker was killed"))
        else:
            future.set_result(function(*arguments))
        return future


def test_a_worker_that_is_killed(small):
    """What was measured is kept, and the next call measures the rest."""
    with pytest.raises(concurrent.futures.process.BrokenProcessPool):
        seekless.run(small, out="shared", executor=Killing())
    kept = len((pathlib.Path("shared") / "points.jsonl").read_text().splitlines())
    assert 0 < kept < 20
    result = seekless.run(small, out="shared")
    assert result.provenance["points_measured"] == 20 - kept
    seekless.run(small, out="alone")
    assert files("alone") == files("shared")


def test_a_worker_with_other_files(small, tmp_path):
    """A worker whose experiment has been changed refuses its points: results never mix."""
    import os
    import shutil

    other = tmp_path / "other"
    shutil.copytree(small, other)
    text = (other / "experiment.toml").read_text().replace("random", "sequential", 1)
    (other / "experiment.toml").write_text(text)

    class Elsewhere(concurrent.futures.Executor):
        def submit(self, function, line, share, points):
            future = concurrent.futures.Future()
            line = [os.fspath(other) if word == os.fspath(small) else word for word in line]
            future.set_result(function(line, share, points))
            return future

    with pytest.raises(seekless.SeeklessError, match="differ from those where it was planned"):
        seekless.run(small, executor=Elsewhere())


def test_workers_that_live_on_see_the_changed_experiment(small):
    """A worker plans once more where the files were changed since its first run."""
    text = (small / "experiment.toml").read_text()
    with threads() as executor:
        seekless.run(small, out="before", executor=executor)
        (small / "experiment.toml").write_text(text.replace("random", "sequential", 1))
        seekless.run(small, out="changed", executor=executor)
    seekless.run(small, out="alone")
    assert files("changed") == files("alone") != files("before")


def test_two_runs_at_once_share_a_folder(small):
    """A run that is open holds no other up, and what the other has measured is not measured again."""
    study = seekless._native.OpenStudy(["run", str(small)], _worker.library(), None)
    result = seekless.run(small)
    assert len(result.rows) == 20 and result.provenance["points_measured"] == 20
    study.close()
    again = seekless.run(small)
    assert list(again.rows) == list(result.rows) and again.provenance["points_measured"] == 0


def test_points_that_fail(desk):
    """The others are kept; the error names the first, and has their rows."""
    folder = desk / "failing"
    folder.mkdir()
    (folder / "experiment.toml").write_text(
        """
        title = "Failing"
        workload = { kind = "smallfile", files = 3000 }
        contestant = [{ name = "good", on = "lfs / disk:dec-rz26" }, { name = "full", on = "lfs / memory:9MiB" }]
        """
    )
    for executor in (None, concurrent.futures.ThreadPoolExecutor(1)):
        with pytest.raises(seekless.SeeklessError, match="full: .*") as error:
            seekless.run(folder, out=f"out-{executor is None}", executor=executor)
        assert set(error.value.partial.rows["contestant"]) == {"good"}


def test_figures(small):
    figure = seekless.run(small).figures["reads"]
    spec, bundle = figure.spec(), figure._repr_mimebundle_()
    assert len(spec["data"]["values"]) == 20 and spec["mark"]["type"] == "line"
    assert bundle["application/vnd.vegalite.v5+json"] == spec and bundle["image/svg+xml"].startswith("<svg")
    json.dumps(spec, allow_nan=False)
    assert "Reads" in repr(figure)
    # The axis begins at zero, as on the page; a logarithmic one has no place for it.
    assert spec["encoding"]["y"]["scale"] == {"zero": True}
    figure.drawing["y_log"] = True
    figure.drawing["panels"][0]["curves"][0]["marks"][0]["y"] = 0
    assert len(figure.spec()["data"]["values"]) == 19


def test_an_experiment_by_name(monkeypatch, small):
    """A name that is no folder here is that of an experiment which came with the package."""
    monkeypatch.setattr(seekless._experiments, "share", lambda: str(small.parent / "share"))
    (small.parent / "share" / "experiments").mkdir(parents=True)
    small.rename(small.parent / "share" / "experiments" / "named")
    assert len(seekless.run("named").rows) == 20


def test_bad_batches(small):
    # A shell that starts the tests in the background has them ignore it.
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ValueError, match="at least one point"):
        seekless.run(small, batch=0)
    assert signal.getsignal(signal.SIGINT) is before
