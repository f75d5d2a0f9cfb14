"""Tables: other libraries take them without a copy, and theirs are traces."""

import datetime
import gc

import pytest

import seekless


@pytest.fixture(scope="module")
def replayed():
    from conftest import TRACE

    return seekless.replay(TRACE, on=["disk:nearline-4tb", "raid0:n=2 / disk:nearline-4tb"], timing="open", requests=True)


def test_requests_agree_with_the_outcome(replayed):
    pd = pytest.importorskip("pandas")
    if hasattr(pd.DataFrame, "from_arrow"):
        frame = pd.DataFrame.from_arrow(replayed.requests)
    else:  # Before pandas 3.
        frame = pytest.importorskip("pyarrow").table(replayed.requests).to_pandas()
    frame["response_ns"] = frame["done_ns"] - frame["made_ns"]
    outcomes = {row["stack"]: row for row in replayed.outcomes if row["operation"] == "all"}
    for stack, group in frame.groupby("stack", observed=True):
        assert len(group) == outcomes[stack]["requests"] and sorted(group["number"]) == list(range(1, len(group) + 1))
        assert group["response_ns"].mean() == pytest.approx(outcomes[stack]["mean_ns"], abs=1)
    assert len(frame) == len(replayed.requests)


def test_polars_duckdb_and_pyarrow(replayed):
    table = replayed.requests
    pa = pytest.importorskip("pyarrow")
    arrow = pa.table(table)
    assert arrow.column_names == table.columns and arrow.num_rows == len(table)
    pl = pytest.importorskip("polars")
    assert pl.DataFrame(table).height == len(table)
    duckdb = pytest.importorskip("duckdb")
    requests = table  # noqa: F841 (DuckDB finds it by its name)
    counted = duckdb.sql("select stack, count(*), max(done_ns) from requests group by all order by 1").fetchall()
    ends = {row["stack"]: row["elapsed_ns"] for row in replayed.outcomes if row["operation"] == "all"}
    assert {stack: end for stack, _, end in counted} == ends


def test_no_copies(replayed):
    """Two takers see the same memory."""
    pa = pytest.importorskip("pyarrow")
    first, second = (pa.table(replayed.requests).column("done_ns").chunk(0).buffers()[1].address for _ in range(2))
    assert first == second


def test_a_table_outlives_its_result():
    pa = pytest.importorskip("pyarrow")
    table = pa.table(seekless.Table.of_rows([{"a": 1, "b": "x"}, {"a": 2}]))
    gc.collect()
    assert table.to_pylist() == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]


def test_a_capsule_that_is_not_used_is_released(replayed):
    for _ in range(1000):
        replayed.requests.__arrow_c_stream__()
        replayed.requests.__arrow_c_schema__()


def test_types_of_columns():
    rows = [{"text": "a", "whole": 1, "number": 1, "switch": True, "none": None, "mixed": 1}]
    rows += [{"text": None, "whole": 2, "number": 0.5, "switch": False, "none": None, "mixed": "x"}]
    assert list(seekless.Table.of_rows(rows)) == [
        {"text": "a", "whole": 1, "number": 1.0, "switch": True, "none": None, "mixed": "1"},
        {"text": None, "whole": 2, "number": 0.5, "switch": False, "none": None, "mixed": "x"},
    ]
    assert len(seekless.Table.of_rows([])) == 0 and seekless.Table.of_rows([]).columns == []
    with pytest.raises(ValueError, match="several types"):
        seekless.Table.of_rows([{"a": 1}, {"a": [1]}])
    table = seekless.Table.of_rows([{"a<b": 1}])
    assert "a&lt;b" in table._repr_html_() and repr(table).startswith("a<b")
    with pytest.raises(KeyError, match="there is no column"):
        table["c"]


def test_requests_are_a_trace(replayed, trace):
    """What was replayed can be replayed again, with the same result as from its file. Method: the requests of one stack as a
    table of pandas, of Polars and of this package."""
    again = seekless.replay(trace, on="disk:nearline-4tb", timing="open", requests=True)
    wanted = list(again.outcomes)[0]
    pl, pa = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    ours = again.requests
    for table in [ours, pl.DataFrame(ours), pa.table(ours), pa.table(ours).to_pandas()]:
        result = seekless.replay(table, on="disk:nearline-4tb", timing="open")
        got = list(result.outcomes)[0]
        assert got == wanted, type(table)
        assert result.trace["why"] == "its requests were given by a program"


def test_traces_of_other_types():
    """Times with units, words of other tracers, devices, latencies."""
    pa = pytest.importorskip("pyarrow")
    second = datetime.datetime(2026, 1, 1)
    columns = {
        "time": [second + datetime.timedelta(milliseconds=ms) for ms in (0, 10, 20)],
        "op": ["R", "w", "flush"],
        "offset": [0, 4096, 0],
        "bytes": [4096, 512, 0],
        "latency": [datetime.timedelta(milliseconds=5)] * 3,
        "device": ["a", "b", "a"],
    }
    table = pa.table(columns)
    result = seekless.replay(table, on="disk:cheetah9lp", timing="think", devices="concatenate")
    assert {row["operation"] for row in result.outcomes} == {"all", "read", "write", "flush"}
    with pytest.raises(seekless.SeeklessError, match="2 devices"):
        seekless.replay(table, on="disk:cheetah9lp")


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"time_ns": None}, "no column time_ns or recorded_ns or time"),
        ({"time_ns": [0.5, 1.5]}, "integers of nanoseconds"),
        ({"time_ns": [1.0, float("nan")]}, "row 1: its time is missing"),
        ({"time_ns": [-1, 0]}, "row 0: its time is before 0"),
        ({"operation": ["read", "eat"]}, "row 1: `eat` is none of"),
        ({"operation": ["read", None]}, "row 1: operation is missing"),
        ({"offset": [None, None]}, "row 0: offset is missing"),
        ({"bytes": [0, 1]}, "row 0: it has 0 bytes"),
        ({"offset": [0, -1]}, "offset"),
        ({"offset": "end"}, "row 1: its end has no 64-bit address"),
        ({"flags": ["F", "?"]}, "row 1: flags `.`: a letter is unknown"),
        ({"latency_ns": [1, -1]}, "row 1: it took less than no time"),
    ],
)
def test_tables_that_are_no_trace(changed, message):
    pa = pytest.importorskip("pyarrow")
    columns = {"time_ns": [0, 1], "operation": ["read", "write"], "offset": [0, 512], "bytes": [512, 512], **changed}
    if columns["offset"] == "end":
        columns["offset"] = pa.array([0, 2**64 - 1], pa.uint64())
    table = pa.table({name: values for name, values in columns.items() if values is not None})
    with pytest.raises(ValueError, match=message):
        seekless.replay(table, on="disk:cheetah9lp")


def test_what_is_no_table():
    with pytest.raises(TypeError, match="a trace is a path, or a table"):
        seekless.replay(7, on="disk:cheetah9lp")
    pa = pytest.importorskip("pyarrow")
    with pytest.raises(TypeError, match="the trace is a table"):
        seekless.replay(pa.table({"a": [1]}), on="disk:cheetah9lp", format="msr")
    empty = pa.table({name: pa.array([], pa.int64()) for name in ("time_ns", "offset", "bytes")}).append_column(
        "op", pa.array([], pa.string())
    )
    with pytest.raises(seekless.SeeklessError, match="no request"):
        seekless.replay(empty, on="disk:cheetah9lp")
