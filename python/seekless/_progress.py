"""How far a command is, in a notebook or on a terminal."""

from __future__ import annotations

import html
import sys
from typing import Any, Callable, Optional, Union

#: Called with what is under way, how much of it is done, and the whole, which is None for a stream without a known end.
#: What it raises ends the command, and comes out of the function that was called.
Progress = Callable[[str, int, Optional[int]], None]


class Bar:
    """A progress bar: one display that changes in a notebook, a line on a terminal, and otherwise nothing."""

    def __init__(self) -> None:
        self._display: Any = None
        self._is_notebook = _is_notebook()
        self._is_terminal = sys.stderr.isatty()

    def __call__(self, what: str, done: int, total: Optional[int]) -> None:
        if self._is_notebook:
            self._show(_Html(_bar(what, done, total)))
        elif self._is_terminal:
            share = f"{done / total:4.0%}" if total else f"{done}"
            sys.stderr.write(f"\r\x1b[K{share} {what[:60]}")
            sys.stderr.flush()

    def close(self) -> None:
        """Takes the bar away."""
        if self._display is not None:
            self._display.update(_Html(""))
        elif self._is_terminal:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def _show(self, picture: "_Html") -> None:
        if self._display is None:
            import IPython.display

            show: Any = IPython.display.display
            self._display = show(picture, display_id=True)
        else:
            self._display.update(picture)


class _Html:
    def __init__(self, text: str) -> None:
        self._text = text

    def _repr_html_(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return ""


def _bar(what: str, done: int, total: Optional[int]) -> str:
    size = f'value="{done}" max="{total}"' if total else ""
    return f"<progress {size}></progress> {html.escape(what)}"


def _is_notebook() -> bool:
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    return type(shell).__name__ == "ZMQInteractiveShell"


class shown:
    """The function that a command calls for ``progress=``: None for False, a new bar for True, otherwise the caller's."""

    def __init__(self, progress: Union[bool, Progress, None]) -> None:
        self._bar = Bar() if progress is True else None
        self._progress = progress if callable(progress) else self._bar

    def __enter__(self) -> Optional[Progress]:
        return self._progress

    def __exit__(self, *error: Any) -> None:
        if self._bar is not None:
            self._bar.close()
