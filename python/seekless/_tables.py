"""Tables: Arrow data of the engine, and how they look in a notebook."""

from __future__ import annotations

import html
import json
from typing import Any, Dict, Iterable, Iterator, List, Mapping

from seekless import _native

#: Rows that are shown of a longer table.
SHOWN_MAX = 20


class Table:
    """A result as columns. ``pandas.DataFrame.from_arrow``, ``polars.DataFrame``, ``pyarrow.table`` and DuckDB take it as it
    is, because it has ``__arrow_c_stream__``; none of them has to be installed."""

    def __init__(self, native: _native.Table) -> None:
        self._native = native

    @classmethod
    def of_rows(cls, rows: Iterable[Mapping[str, Any]]) -> "Table":
        """A table of objects with the same names; what one of them lacks is null."""
        return cls(_native.Table.of_rows(json.dumps(list(rows))))

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._native.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> Any:
        return self._native.__arrow_c_schema__()

    def __len__(self) -> int:
        return len(self._native)

    def __getitem__(self, column: str) -> List[Any]:
        """The values of a column, as objects of Python."""
        return self._native[column]

    def __iter__(self) -> Iterator[Dict[str, Any]]:
        """The rows, as dictionaries: for short tables."""
        return (self._native.row(number) for number in range(len(self)))

    @property
    def columns(self) -> List[str]:
        return self._native.columns

    def _shown(self) -> List[List[str]]:
        rows = (self._native.row(number) for number in range(min(len(self), SHOWN_MAX)))
        return [[_text(row[name]) for name in self.columns] for row in rows]

    def _rest(self) -> str:
        rows = "1 row" if len(self) == 1 else f"{len(self)} rows"
        return f"{rows}, {SHOWN_MAX} shown" if len(self) > SHOWN_MAX else rows

    def __repr__(self) -> str:
        lines = [self.columns] + self._shown()
        widths = [max(len(line[index]) for line in lines) for index in range(len(self.columns))]
        text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]
        return "\n".join(text + [f"[{self._rest()}]"])

    def _repr_html_(self) -> str:
        def row(cells: Iterable[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

        body = "".join(row(cells, "td") for cells in self._shown())
        return f"<table><thead>{row(self.columns, 'th')}</thead><tbody>{body}</tbody></table><p>{self._rest()}</p>"


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
