"""The examples of the guide run as they are written, one after another."""

import pathlib

import pytest

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


@pytest.mark.parametrize("number", range(len(blocks(SWEEPS))))
def test_recipes_give_the_rows_of_one_process(desk, small, number, monkeypatch):
    """Each recipe of the page in Python, on a small experiment of the same name, in a process of its own."""
    import subprocess
    import sys

    import seekless

    _, text = blocks(SWEEPS)[number]
    for library in ("dask.distributed", "ray"):
        if library in text:
            pytest.importorskip(library)
    (desk / "experiments").mkdir()
    small.rename(desk / "experiments/ro92-fig4")
    (desk / "recipe.py").write_text(text)
    done = subprocess.run([sys.executable, "recipe.py"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    seekless.run("experiments/ro92-fig4", out="alone")
    for name in ("rows.jsonl", "rows.csv", "resolved.toml"):
        assert (desk / "alone" / name).read_bytes() == (desk / "results/ro92-fig4" / name).read_bytes()
