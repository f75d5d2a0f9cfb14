"""Arguments of Python as words of the command line, which the program's own parser reads."""

from __future__ import annotations

import os
from typing import Any, Iterable, List, Sequence, Union

Strings = Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]]]


def listed(value: Strings) -> List[str]:
    """One value or several, as texts."""
    if isinstance(value, (str, os.PathLike)):
        return [os.fspath(value)]
    return [os.fspath(one) for one in value]


def words(command: Iterable[str], arguments: Iterable[str] = (), **options: Any) -> List[str]:
    """The words of a command. An option that is None or False is left out, True is one without a value."""
    line = list(command)
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            line.append(option)
        elif isinstance(value, (list, tuple)):
            line.extend(f"{option}={os.fspath(one) if isinstance(one, os.PathLike) else one}" for one in value)
        else:
            line.append(f"{option}={os.fspath(value) if isinstance(value, os.PathLike) else value}")
    arguments = list(arguments)
    return line + ["--"] + arguments if arguments else line
