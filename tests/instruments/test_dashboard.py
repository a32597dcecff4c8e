"""The dashboard for Grafana: it queries existing series only, and all of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.instruments.exported_series import exported_by_prometheus
from tests.support.instruments.promql import QueryError, Series, parse

FILE = Path(__file__).parents[2] / "docs" / "grafana" / "redouble.json"
DASHBOARD: dict[str, Any] = json.loads(FILE.read_text("utf-8"))
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
TARGETS: list[tuple[str, dict[str, Any]]] = [
    (panel["title"], target) for panel in PANELS for target in panel.get("targets", ())
]
VARIABLES: dict[str, dict[str, Any]] = {one["name"]: one for one in DASHBOARD["templating"]["list"]}
GROWING = ("_total", "_bucket", "_sum", "_count")


@pytest.fixture
def exported() -> dict[str, frozenset[str]]:
    """Return the exported series with their labels."""
    return exported_by_prometheus()


COUNTED = "rejected_total hedges_total hedges_won_total fallbacks_total coalesced_total"
# Whose names are also those of another series: the bulkheads are those of redouble_bulkhead_in_use.
FOLLOWING = (
    "budget_in_flight",
    "bulkhead_queued",
    "gate_limit",
    "gate_class_in_use",
    "gate_class_queued",
    "throttle_accepts",
    "worker_abandoned",
    "hedges_won_total",
)


def of_gates(exported: Series) -> set[str]:
    """Return the series whose ``name`` label is that of a gate, another layer or a budget."""
    waits = {series for series in exported if series.startswith("redouble_gate_wait_")}
    gauges = {series for series in exported if not series.endswith(GROWING)}
    return waits | gauges | {f"redouble_{name}" for name in COUNTED.split()}


@pytest.mark.parametrize(("title", "target"), TARGETS)
def test_every_query_reads_exported_series(title: str, target: dict[str, str], exported: Series) -> None:
    asked = parse(target["expr"], exported)
    assert asked.series
    assert asked.labels == frozenset(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])), title


@pytest.mark.parametrize(("title", "target"), TARGETS)
def test_every_query_filters_by_the_chosen_name(title: str, target: dict[str, str], exported: Series) -> None:
    query = target["expr"]
    whose = "$gate" if parse(query, exported).series <= of_gates(exported) else "$name"
    selectors = re.findall(r"redouble_\w+(\{[^}]*\})?", query)
    assert [f'name=~"{whose}"' in selector for selector in selectors] == [True] * len(selectors), title
    assert set(re.findall(r"\$(\w+)", query)) <= {whose[1:], "__rate_interval"}


def test_every_metric_is_on_the_dashboard(exported: Series) -> None:
    asked = {series for _, target in TARGETS for series in parse(target["expr"], exported).series}
    assert {_metric(series) for series in asked} == {_metric(series) for series in exported}


def _metric(series: str) -> str:
    return re.sub("_(bucket|sum|count)$", "", series)


def test_variables_list_the_exported_names(exported: Series) -> None:
    assert list(VARIABLES) == ["datasource", "name", "gate"]
    assert VARIABLES["datasource"]["query"] == "prometheus"
    others = {series for series in exported if series.startswith("redouble_gate_wait_")}
    others |= {f"redouble_{name}" for name in FOLLOWING}
    for name, series in (("name", {"redouble_calls_total"}), ("gate", of_gates(exported) - others)):
        query = VARIABLES[name]["query"]["query"]
        assert VARIABLES[name]["definition"] == query
        found = re.fullmatch(r'label_values\((?:\{__name__=~")?(.+?)(?:"\})?, name\)', query)
        assert found is not None
        assert {one for one in exported if re.fullmatch(found[1], one)} == series


def test_the_dashboard_can_be_imported() -> None:
    assert DASHBOARD["schemaVersion"] >= 39
    assert DASHBOARD["id"] is None
    numbers = [panel["id"] for panel in PANELS]
    assert len(set(numbers)) == len(numbers)
    source = {"type": "prometheus", "uid": "${datasource}"}
    for panel in PANELS:
        if panel["type"] != "row":
            assert panel["datasource"] == source
            assert [target["datasource"] for target in panel["targets"]] == [source] * len(panel["targets"])
    used = {panel["type"] for panel in PANELS} - {"row"}
    assert used == {one["id"] for one in DASHBOARD["__requires"] if one["type"] == "panel"}


def test_rows_and_panels_do_not_overlap() -> None:
    rows = [panel["title"] for panel in PANELS if panel["type"] == "row"]
    assert rows == [
        "Calls",
        "Retries",
        "Errors",
        "Latency",
        "Budgets",
        "Breakers",
        "Bulkheads",
        "Limits",
        "Hedges and fallbacks",
        "Language models",
    ]
    taken = set[tuple[int, int]]()
    for panel in PANELS:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("redouble_call_total", "nobody exports redouble_call_total"),
        ('rate(redouble_calls_total{okay="true"}[5m])', r"has no label \['okay'\]"),
        ("redouble_calls_total", "counters have a rate"),
        ("rate(redouble_bulkhead_queued[5m])", "gauges have none"),
        ("rate(redouble_calls_total)", "needs a range"),
        ("sum by (reason) (rate(redouble_calls_total[5m]))", "there is only"),
        ("rate(redouble_retries_total[5m]) / rate(redouble_calls_total[5m])", "nothing would match"),
        ("histogram_quantile(0.5, sum by (name) (rate(redouble_delay_seconds_bucket[5m])))", "without le"),
        ("topk(redouble_bulkhead_queued, redouble_bulkhead_queued)", "no number"),
        ("(redouble_bulkhead_queued", "is due"),
        ("redouble_bulkhead_queued{name}", "is due"),
        ("redouble_bulkhead_queued{name=1}", "no text"),
        ("sum by (1) (redouble_bulkhead_queued)", "1 is no label"),
        ("redouble_bulkhead_queued ? 1", "cannot be read"),
        ("redouble_bulkhead_queued 1", "is due"),
    ],
)
def test_a_wrong_query_is_detected(query: str, message: str, exported: Series) -> None:
    with pytest.raises(QueryError, match=message):
        parse(query, exported)
