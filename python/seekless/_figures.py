"""Figures of experiments: a picture, and a specification for Vega-Lite (https://vega.github.io/vega-lite/)."""

from __future__ import annotations

import math
from typing import Any, Dict, List, cast

SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"


class Figure:
    """A figure with its points. A notebook draws it: with Vega-Lite where it can, and otherwise as a picture."""

    def __init__(self, drawing: Dict[str, Any], svg: str) -> None:
        #: Panels with curves and their points, and what the axes say.
        self.drawing = drawing
        #: The picture.
        self.svg = svg

    @property
    def id(self) -> str:
        return cast(str, self.drawing["id"])

    @property
    def title(self) -> str:
        return cast(str, self.drawing["title"])

    def points(self) -> List[Dict[str, Any]]:
        """Every point, with the panel and the curve that it belongs to. ``source`` is empty for what was measured here."""
        return [
            {
                "panel": panel["name"],
                "curve": curve["name"],
                "colour": curve["colour"],
                "dash": curve["dash"],
                "source": curve["source"],
                "x": mark["x"],
                "y": mark["y"],
            }
            for panel in self.drawing["panels"]
            for curve in panel["curves"]
            for mark in curve["marks"]
        ]

    def spec(self) -> Dict[str, Any]:
        """The figure for Vega-Lite, for example for ``altair.Chart.from_dict``."""
        drawn = [point for point in self.points() if math.isfinite(point["y"])]
        # A logarithmic axis has no place for 0; the page and the picture leave these out, too.
        x_log, y_log = self.drawing["x_log"], self.drawing["y_log"]
        drawn = [point for point in drawn if not y_log or point["y"] > 0]
        points = [point for point in drawn if not x_log or isinstance(point["x"], str) or point["x"] > 0]
        is_bar = self.drawing["chart"] == "bar"
        is_text = any(isinstance(point["x"], str) for point in points)
        y_from = self.drawing["y_from"]
        y_scale: Dict[str, Any] = {"type": "log"} if y_log else {"zero": y_from is None}
        if y_from is not None and not y_log:
            y_scale["domainMin"] = y_from
        x: Dict[str, Any] = {"field": "x", "title": self.drawing["x_label"], "type": "nominal", "sort": None}
        if not is_text and not is_bar:
            x.update(type="quantitative", scale={"type": "log"} if x_log else {"zero": False})
        curve = {"field": "curve", "type": "nominal", "title": None, "sort": None}
        encoding: Dict[str, Any] = {
            "x": x,
            "y": {"field": "y", "type": "quantitative", "title": self.drawing["y_label"], "scale": y_scale},
            "color": curve,
            "tooltip": [{"field": name} for name in ("curve", "x", "y", "source")],
        }
        if is_bar:
            mark: Dict[str, Any] = {"type": "bar"}
            encoding["xOffset"] = curve
        else:
            mark = {"type": "line", "point": True}
            # What was published is dashed.
            published = {"condition": {"test": "datum.source !== ''", "value": [5, 4]}, "value": [1, 0]}
            encoding["strokeDash"] = published
            encoding["detail"] = curve
        unit = {"mark": mark, "encoding": encoding}
        spec: Dict[str, Any] = {
            "$schema": SCHEMA,
            "title": self.drawing["title"],
            "description": self.drawing["caption"],
            "data": {"values": points},
        }
        if len(self.drawing["panels"]) > 1:
            panel = {"field": "panel", "type": "nominal", "title": None, "sort": None}
            return {**spec, "facet": panel, "columns": 2, "spec": unit}
        return {**spec, **unit}

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Dict[str, Any]:
        return {
            "application/vnd.vegalite.v5+json": self.spec(),
            "image/svg+xml": self.svg,
            "text/plain": repr(self),
        }

    def __repr__(self) -> str:
        return f"<Figure {self.id}: {self.title}, {len(self.points())} points>"
