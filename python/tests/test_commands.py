"""The functions of commands: their results are those of the program, their errors its messages."""

import inspect
import json
import pathlib
import shutil
import subprocess
import sysconfig

import pytest

import seekless
from seekless import _native


def program(*words):
    """What the program of this installation prints."""
    path = shutil.which("seekless", path=sysconfig.get_path("scripts"))
    if path is None:
        pytest.skip("the program is in the wheel, and this is a development build")
    return subprocess.run([path, *words], check=True, capture_output=True, text=True).stdout


def test_bench_measures():
    """Phases are rows, and the same arguments give the same nanoseconds."""
    lines = ["lfs / disk:dec-rz26", "ffs / disk:dec-rz26"]
    bench = seekless.bench("smallfile", on=lines, files=50, profile="sparcstation2")
    rows = list(bench.phases)
    assert [row["phase"] for row in rows] == ["create", "read", "delete"] * 2
    assert {row["contestant"] for row in rows} == set(lines) and {row["clock"] for row in rows} == {"virtual"}
    assert rows[0]["elapsed_ns"] < rows[3]["elapsed_ns"], "a log takes small files faster than update in place"
    assert rows == list(seekless.bench("smallfile", on=lines, files=50, profile="sparcstation2").phases)
    assert "create" in repr(bench) and {"part", "counter", "count"} < set(bench.counters.columns)
    assert len(bench.published) == len(bench.value["published"])


def test_bench_is_the_command():
    words = ["bench", "smallfile", "--on", "lfs / disk:dec-rz26", "--files", "20", "--json"]
    assert seekless.bench("smallfile", "lfs / disk:dec-rz26", files=20).value == json.loads(program(*words))


def test_bench_in_real_time(desk):
    """A directory of the host, and a file system on an image, are measured in real time; nothing is left in the directory."""
    bench = seekless.bench("smallfile", on=["./", "lfs / memory:64MiB"], files=10)
    assert {row["clock"] for row in bench.phases} == {"real", "virtual"}
    assert list(desk.iterdir()) == []


def test_errors_have_a_caret():
    with pytest.raises(seekless.UsageError) as error:
        seekless.bench("smallfile", on="lfs / dsk:dec-rz26", files=10)
    lines = str(error.value).splitlines()
    line, caret = next((line, below) for line, below in zip(lines, lines[1:]) if below.strip().startswith("^"))
    assert line[caret.index("^") :].startswith("dsk"), error.value
    assert isinstance(error.value, ValueError) and isinstance(error.value, seekless.SeeklessError)


@pytest.mark.parametrize(
    "call",
    [
        lambda: seekless.bench("smallfile", on="lfs / disk:dec-rz26", flies=10),
        lambda: seekless.bench("smallfiles", on="lfs / disk:dec-rz26"),
        lambda: seekless.bench("smallfile", on="lfs / disk:dec-rz26", profile="pdp11"),
        lambda: seekless.replay("no.trace", on="lfs / disk:dec-rz26"),
        lambda: seekless.clean("gredy"),
        lambda: seekless.disk("dec-rz27"),
        lambda: seekless.run("no-such-experiment"),
        lambda: seekless.bench("smallfile", on=[]),
    ],
)
def test_wrong_arguments(call):
    with pytest.raises(seekless.UsageError):
        call()


def test_what_did_not_fail_is_kept(trace):
    """A stack that fails leaves the others their results."""
    with pytest.raises(seekless.SeeklessError) as error:
        seekless.bench("smallfile", on=["lfs / disk:dec-rz26", "lfs / memory:9MiB"], files=20000)
    assert not isinstance(error.value, seekless.UsageError)
    assert {row["contestant"] for row in error.value.partial.phases} == {"lfs / disk:dec-rz26"}
    with pytest.raises(seekless.SeeklessError) as error:
        seekless.replay(trace, on=["memory:1MiB", "disk:nearline-4tb"])
    assert "memory:1MiB" in str(error.value)
    assert set(error.value.partial.outcomes["stack"]) == {"disk:nearline-4tb"}


def test_advise(trace, desk):
    """Candidates with prices, the answer in words and as a page; nothing is written. It is the command's."""
    candidates = ["disk:nearline-4tb", "ssd:nvme-a"]
    advice = seekless.advise(trace, on=candidates, within="60s", price={"disk": 85, "ssd": 140.5})
    rows = {row["stack"]: row for row in advice.candidates}
    assert set(rows) == set(candidates) and rows["ssd:nvme-a"]["price"] == 140.5
    assert advice.fastest == "ssd:nvme-a" and advice.cheapest == "disk:nearline-4tb"
    assert any("Cheapest" in sentence for sentence in advice.sentences) and "Cheapest" in repr(advice)
    assert "<svg" in advice.page or "<script" in advice.page
    assert list(desk.iterdir()) == []
    words = ["advise", trace, "--on", candidates[0], "--on", candidates[1], "--within", "60s"]
    words += ["--price", "disk=85", "--price", "ssd=140.5", "--json"]
    assert advice.value == [json.loads(line) for line in program(*words).splitlines()]


def test_advise_about_a_table(trace):
    """Requests of a replay are a trace; without candidates there are disks, arrays and flash."""
    requests = seekless.replay(trace, on="disk:nearline-4tb", timing="open", requests=True).requests
    advice = seekless.advise(requests)
    assert len(advice.candidates) > 5 and advice.fastest in advice.candidates["name"]
    assert advice.value == seekless.advise(trace).value
    with pytest.raises(TypeError, match="device= says how a file is read"):
        seekless.advise(requests, device="sda")
    with pytest.raises(seekless.UsageError):
        seekless.advise(trace, within="soon")
    with pytest.raises(seekless.SeeklessError, match="no.trace"):
        seekless.advise("no.trace")


def test_advise_about_a_workload(desk):
    """File systems on two drives, phase by phase. It is the command's."""
    layouts = ["ffs / disk:nearline-4tb", "lfs / ssd:nvme-a"]
    files = {"files": 50}
    advice = seekless.advise("smallfile", on=layouts, set=files, profile="sparcstation2", within="1min")
    assert list(advice.candidates["stack"]) == layouts and advice.fastest == layouts[1]
    assert set(advice.phases["name"]) == set(layouts) and "create" in advice.phases["phase"]
    words = ["advise", "smallfile", "--on", layouts[0], "--on", layouts[1], "--set", "files=50", "--profile", "sparcstation2"]
    assert advice.value == [json.loads(line) for line in program(*words, "--within", "1min", "--json").splitlines()]
    with pytest.raises(seekless.UsageError, match="files"):
        seekless.advise("smallfile", set={"no_such_number": 1})
    assert [path.name for path in desk.iterdir() if path.name != "advice.html"] == []


def test_clean():
    result = seekless.clean(["greedy", "cost-benefit:age=root"], blocks=4096, segment_blocks=64, writes=4, warm_up=4)
    rows = list(result.policies)
    assert [row["policy"].split(":")[0] for row in rows] == ["greedy", "cost-benefit"]
    assert all(row["write_cost"] > 1 for row in rows) and all(row["blocks"] == 4096 for row in rows)
    shares = [row["cleaned_share"] for row in result.distributions if row["policy"] == "greedy"]
    assert len(shares) == 20 and sum(shares) == pytest.approx(1)


def test_clean_by_a_trace(desk):
    """A trace of any format can be cleaned by, and what was not used of it is reported."""
    rows = [f"{n},w,{n * 37 % 64 * 4096},4096" for n in range(400)] + ["401,w,here,4096"]
    (desk / "a.csv").write_text("\n".join(rows) + "\n")
    columns = "csv:time=1:us,op=2,offset=3:B,length=4:B"
    result = seekless.clean(["greedy", "cost-benefit"], pattern="trace:file=a.csv", format=columns, segment_blocks=4)
    assert [note for note in result.notes if "rejected: 1 x the offset is not a number" in note] != []
    assert len(result.notes) == len(set(result.notes)) and len(list(result.policies)) == 2


def test_disks():
    drives = {row["name"]: row for row in seekless.disks()}
    assert drives["cheetah9lp"]["rpm"] > 10000
    assert seekless.disk("cheetah9lp")["bytes"] == drives["cheetah9lp"]["bytes"]
    assert seekless.disk("disk:size=4TB,rpm=7200,seek=8.5ms,rate=180MB")["rpm"] == 7200


#: Options of the commands that say what is printed or written, which a function returns; and the arguments of functions that
#: no option is for.
PRINTED = {"json", "list", "histogram", "check", "dry_run", "rows", "svg", "force", "output"}
ADDED = {"progress", "requests", "executor", "batch"}
POSITIONAL = {"files": "trace", "policies": "policies", "experiment": "experiment"}


@pytest.mark.parametrize("name", ["replay", "advise", "clean", "run"])
def test_functions_have_the_options_of_their_commands(name):
    options = {option["name"] for option in json.loads(_native.options([name]))} - PRINTED
    wanted = {POSITIONAL.get(option, option) for option in options}
    assert set(inspect.signature(getattr(seekless, name)).parameters) - ADDED == wanted


def test_bench_has_the_options_of_every_workload():
    """The numbers of a workload are passed on; the others are arguments."""
    common = {"on", "profile", "clock", "seed"}
    for workload in ["smallfile", "postmark", "tpcb"]:
        options = {option["name"] for option in json.loads(_native.options(["bench", workload]))}
        assert common < options, workload


def test_types():
    """The package is typed."""
    folder = pathlib.Path(seekless.__file__).parent
    assert (folder / "py.typed").exists() and (folder / "_native.pyi").exists()
    api = pytest.importorskip("mypy.api")
    out, err, code = api.run(["--strict", "--cache-dir=/dev/null", "--package", "seekless"])
    assert code == 0, out + err
