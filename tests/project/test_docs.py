"""The documentation: every snippet runs and prints the output shown, every link has a target.

The snippets of a page share a namespace, from top to bottom; `tests.support.snippets` has the format.
"""

from __future__ import annotations

import doctest
import re
import sys
from types import ModuleType
from urllib.parse import unquote

import pytest

from redouble.config import _reload as _live
from tests.support.snippets import FENCE, ROOT, RUN, links, run, snippets

pytestmark = pytest.mark.one_python

DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [path.relative_to(ROOT).as_posix() for path in (ROOT / "README.md", *DOCS)]
LINKED = [path.relative_to(ROOT).as_posix() for path in (*sorted(ROOT.glob("*.md")), *DOCS)]


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return a module in which the page runs: dataclasses and pickles look up their module by name."""
    monkeypatch.setattr(_live, "LIVE", _live.ConfigStore())  # a page may load a configuration
    page = ModuleType("a_page_of_the_documentation")
    monkeypatch.setitem(sys.modules, page.__name__, page)
    return page


@pytest.mark.parametrize("path", PAGES)
def test_every_snippet_runs(path: str, module: ModuleType) -> None:
    for snippet in snippets((ROOT / path).read_text("utf-8")):
        where = f"{path}:{snippet.line}"
        almost = snippet.language.lower().startswith("py") and snippet.language not in RUN
        assert not almost, f"{where}: {snippet.language!r} would not be run, write one of {RUN}"
        if snippet.not_run is not None:
            assert snippet.not_run, f"{where}: say why it is not run"
        elif snippet.language in RUN:
            run(snippet, path, vars(module))


# ------------------------------------------------------------------------------- links

HEADING = re.compile(r"^#{1,6}[ ]+(.+?)[ ]*#*$", re.MULTILINE)


def anchors(page: str) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub derives them."""
    found: set[str] = set()
    for heading in HEADING.findall(FENCE.sub("", page)):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.add(
            slug if slug not in found else next(s for n in range(1, 99) if (s := f"{slug}-{n}") not in found)
        )
    return found


@pytest.mark.parametrize("path", LINKED)
def test_every_link_leads_somewhere(path: str) -> None:
    dead: list[str] = []
    for link in links((ROOT / path).read_text("utf-8")):
        if re.match(r"[a-z][a-z0-9+.-]*:", link):
            continue
        target, _, anchor = link.partition("#")
        file = ((ROOT / path).parent / unquote(target)).resolve() if target else ROOT / path
        there = file.exists() and file.is_relative_to(ROOT)
        if not there or (anchor and anchor not in anchors(file.read_text("utf-8"))):
            dead.append(link)
    assert dead == []


# ------------------------------------------------------------- these tests can fail

PAGE = """\
# A `page`, of tests

```python
x = 1
```

- item

  ```python
  x += 1
  ```

<!-- not run: it needs a server -->
```python
serve()
```

<!-- not run: -->
```python
```

```python
async def one(): return 1
x += await one()
```

```python
>>> x
3
```

Some text:

~~~text
[no link](nowhere.md)
~~~

```python
print("- three is")
print("-", x)
```

```text
- three
  is
- 3
```

[A link](docs/there.md#part "title"), `[no link](nowhere.md)`, [another][ref], ![image](<a.png>)

[ref]: https://example.org
"""


def test_snippets_are_found_and_run() -> None:
    found = list(snippets(PAGE))
    assert [s.language for s in found] == ["python"] * 6 + ["text", "python", "text"]
    assert [s.not_run for s in found] == [None, None, "it needs a server", "", *[None] * 5]
    assert [s.prints for s in found if s.prints] == ["- three is\n- 3\n"]
    assert [PAGE.splitlines()[s.line - 1].strip() for s in found[:2]] == ["x = 1", "x += 1"]
    namespace: dict[str, object] = {}
    for index in (0, 1, 4, 5, 7):
        run(found[index], "README.md", namespace)
    assert namespace["x"] == 3


def test_a_failing_snippet_is_reported_with_its_line() -> None:
    with pytest.raises(NameError) as caught:
        run(next(s for s in snippets(PAGE) if s.not_run), "README.md", {})
    assert caught.traceback[-1].lineno == PAGE.splitlines().index("serve()")
    with pytest.raises(doctest.UnexpectedException):
        run(list(snippets(PAGE))[5], "README.md", {})


def test_a_snippet_with_other_output_is_reported() -> None:
    with pytest.raises(AssertionError, match=r"README\.md:\d+ prints something else"):
        run(list(snippets(PAGE))[7], "README.md", {"x": 4})


def test_links_and_anchors_are_found() -> None:
    assert links(PAGE) == ["docs/there.md#part", "a.png", "https://example.org"]
    assert anchors(PAGE + "\n## Part\n\n## Part\n") == {"a-page-of-tests", "part", "part-1"}
