"""The notebook runs from its first cell to its last, and its figures are drawn."""

import pathlib
import sys

import pytest

import seekless

NOTEBOOK = pathlib.Path(__file__).resolve().parents[1] / "notebooks/papers.ipynb"
ROOT = NOTEBOOK.parents[2]


def test_the_notebook_runs(desk):
    """A figure of each of the five papers, and the question beyond. In a development build, whose experiments are not
    installed, they are put where the notebook is run."""
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    if seekless._experiments.share() is None:
        for name in ("ro92-fig4", "se95-fig1", "wa99-fig8", "za01-fig8", "st05-fig6", "st05-traces"):
            (desk / name).symlink_to(ROOT / "experiments" / name)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "outputs are not kept in the repository"
    kernel = {"argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"], "display_name": "here", "language": "python"}
    folder = desk / "kernels/kernels/here"
    folder.mkdir(parents=True)
    import json
    import os

    (folder / "kernel.json").write_text(json.dumps(kernel))
    os.environ["JUPYTER_PATH"] = os.fspath(desk / "kernels")
    try:
        client = nbclient.NotebookClient(
            notebook, timeout=600, kernel_name="here", resources={"metadata": {"path": os.fspath(desk)}}
        )
        client.execute()
    finally:
        del os.environ["JUPYTER_PATH"]
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert not [output for output in outputs if output["output_type"] == "error"]
    specs = [output["data"].get("application/vnd.vegalite.v5+json") for output in outputs if "data" in output]
    specs = [spec for spec in specs if spec]
    assert len(specs) == 6 and all(spec["data"]["values"] for spec in specs)
    pictures = [output for output in outputs if "image/svg+xml" in output.get("data", {})]
    assert len(pictures) == 5
    text = "".join(output.get("text", "") for output in outputs if output["output_type"] == "stream")
    assert text.count("holds") >= 10 and "costs least" in text
