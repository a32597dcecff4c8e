"""The page about metrics: its tables list the exported metrics, and its alerts query existing series."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from redouble.instruments import METRICS, Metric
from redouble.instruments._metric_definitions import BUCKETS
from tests.support.instruments.exported_series import (
    Instrument,
    exported_by_opentelemetry,
    exported_by_prometheus,
)
from tests.support.instruments.promql import parse

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "metrics.md").read_text("utf-8")
ALERTS = re.findall(r"^```promql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
CODE = re.compile("`([^`]+)`")


class Row(NamedTuple):
    """One row of a table: a metric as the page describes it."""

    kind: str
    name: str
    labels: tuple[str, ...]
    meaning: str
    prometheus: str
    opentelemetry: str
    unit: str


def rows() -> list[Row]:
    found: list[Row] = []
    for kind in ("counter", "histogram", "gauge"):
        section = PAGE.partition(f"## {kind.title()}s\n")[2].partition("\n## ")[0]
        for line in re.findall(r"^\| `.*$", section, re.MULTILINE):
            name, labels, meaning, *last = (cell.strip() for cell in line.strip("|").split(" | "))
            exported = [CODE.findall(cell)[0] for cell in last]
            found.append(Row(kind, CODE.findall(name)[0], tuple(CODE.findall(labels)), meaning, *exported))
    return found


ROWS = rows()


def test_every_metric_is_described_in_order() -> None:
    assert [(row.kind, row.name, row.labels) for row in ROWS] == [
        (metric.kind, metric.name, metric.labels) for metric in METRICS
    ]
    assert all(row.meaning for row in ROWS)


@pytest.mark.parametrize(("row", "metric"), list(zip(ROWS, METRICS, strict=False)))
def test_the_names_on_the_page_are_the_exported_ones(row: Row, metric: Metric) -> None:
    unit = metric.unit if metric.kind == "histogram" else f"{{{metric.unit}}}"
    labels = frozenset(metric.labels)
    assert row.unit == unit
    assert exported_by_opentelemetry()[row.opentelemetry] == Instrument(unit, labels)
    if metric.kind != "histogram":
        assert exported_by_prometheus()[row.prometheus] == labels
    else:
        assert exported_by_prometheus()[f"{row.prometheus}_sum"] == labels
        assert exported_by_prometheus()[f"{row.prometheus}_bucket"] == labels | {"le"}


def test_nothing_else_is_exported() -> None:
    assert set(exported_by_opentelemetry()) == {row.opentelemetry for row in ROWS}
    families = {re.sub("_(bucket|sum|count)$", "", series) for series in exported_by_prometheus()}
    assert families == {row.prometheus for row in ROWS}


def test_the_page_lists_the_buckets() -> None:
    assert "from 1 ms to 5 min" in PAGE
    assert (BUCKETS[0], BUCKETS[-1]) == (0.001, 300)


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_compares_exported_series(alert: str) -> None:
    assert {"name"} <= (parse(alert, exported_by_prometheus()).labels or set()) <= {"name", "state"}
    assert re.search(r"(>|<|==) [0-9.]+\n$", alert)


def test_there_are_alerts() -> None:
    assert len(ALERTS) >= 6
