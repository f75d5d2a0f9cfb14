"""What functions raise. The text is that of the program: what is wrong, where, and what to do next."""

from __future__ import annotations

from typing import Any, Optional, Tuple


class SeeklessError(RuntimeError):
    """A command failed.

    ``partial`` is the result for what did not fail, for example the other stacks of a benchmark, and otherwise None.
    """

    def __init__(self, text: str, partial: Any = None) -> None:
        super().__init__(text)
        self.text = text
        self.partial = partial

    def __reduce__(self) -> Tuple[Any, ...]:
        # From another process: with its text, but without results, which stay where they are.
        return (type(self), (self.text,))


class UsageError(SeeklessError, ValueError):
    """The arguments are wrong, and nothing was done. In a stack line a caret is below the mistake."""


class Interrupted(SeeklessError):
    """The work was stopped, without a signal."""


Raw = Optional[Tuple[str, str]]
