"""Cleaning policies in Python, for trying an idea."""

from __future__ import annotations

from typing import Iterable, Optional, Tuple, Union

from seekless._native import Fresh, Moved, Room, Segment, Shape

Place = Union[int, Tuple[int, int]]


class Policy:
    """A policy for ``seekless.clean``: which segment of a log is cleaned, and where blocks go.

    A class with this base has the interface of the engine's own policies. ``choose`` is needed; what a class does not define is
    not called. Time is counted in blocks that the user has written. Each block is a call,
    which makes a policy in Python tens of times slower than one of the engine: simulate tens of thousands of blocks, not millions.
    """

    #: Segments that are written at the same time, from 0.
    heads: int = 1
    #: What it must know of blocks: any of ``times``, ``notes``, and ``future``, which only a simulator knows.
    needs: Iterable[str] = ()
    #: How the live blocks of a pass are written again: ``found``, or ``age``, the oldest first.
    order: str = "found"

    def start(self, shape: Shape) -> None:
        """A simulation begins. A policy that is used again starts over here."""

    def write(self, block: Fresh) -> Place:
        """The head for a block that the user writes, perhaps with a note of up to 16 bits to be kept with it."""
        return 0

    def relocate(self, block: Moved) -> Place:
        """The head for a live block of a segment that is being cleaned."""
        return 0

    def wants(self, room: Room) -> bool:
        """True when a pass begins, or takes one more segment."""
        return room.is_short

    def choose(self, now: int) -> Optional[int]:
        """The segment to clean, one of those that are closed."""
        raise NotImplementedError("a policy has choose(), which returns the number of a closed segment")

    def closed(self, segment: Segment) -> None:
        """A segment is full, and can be chosen from now on. Some of its blocks may be dead already."""

    def died(self, segment: int, live: int) -> None:
        """A block of a closed segment is dead; so many are left."""

    def cleaned(self, segment: Segment) -> None:
        """A segment is being cleaned: it is no longer closed, and its live blocks are about to be relocated."""
