"""Threads that take turns, step by step and in every order, at the places of a bulkhead.

Every method of `Places` is made into a generator that stops wherever a thread may be stopped: where it
begins, and after each call, each test and each assignment. So a few programs can be run in all orders, on
threads that are none; orders that lead to what has been seen already are not followed twice. A program with
a loose end may go on in the middle of another one's, on the same thread: as the garbage collector does it.
"""

from __future__ import annotations

import ast
import inspect
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import cache
from math import inf
from types import CodeType, NoneType
from typing import Any, Protocol, TypeAlias

from redouble import _places

__all__ = ["Program", "Steps", "Ticket", "Wait", "World", "explore"]

Steps: TypeAlias = Generator[object, Any, Any]
Program: TypeAlias = "Callable[[World, Ticket], Steps]"


SHARED = {"inside", "queue", "called", "_again", "_serving"}  # what others may change meanwhile


class Stepping(ast.NodeTransformer):
    """Makes a generator of a method, which gives away what it has just found out, and is given it back."""

    def __init__(self, methods: set[str]) -> None:
        self.methods = methods

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        fn = ast.unparse(node.func)
        return ast.YieldFrom(node) if fn.removeprefix("self.") in self.methods else ast.Yield(node)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        return ast.Yield(node) if isinstance(node.ops[0], ast.In | ast.NotIn) else node

    def visit(self, node: ast.AST) -> Any:
        """Find out whether something is empty, or so, and stop before acting on that."""
        done = super().visit(node)
        match done:
            case ast.If() | ast.While():
                done.test = self._truth(done.test)
            case ast.UnaryOp():
                done.operand = self._truth(done.operand)
            case ast.BoolOp():
                done.values = [self._truth(value) for value in done.values]
            case _:
                pass
        return done

    def _truth(self, tested: ast.expr) -> ast.expr:
        plain = ast.unparse(tested).removeprefix("self.") in SHARED
        return ast.Yield(ast.Call(ast.Name("bool", ast.Load()), [tested], [])) if plain else tested

    def visit_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        self.generic_visit(node)
        own = not any("self." in ast.unparse(target) for target in node.targets)
        return [node] if own else [node, *ast.parse("yield").body]

    def visit_Try(self, node: ast.Try) -> list[ast.stmt]:
        """Do what comes in the end after the rest: nothing is raised here that is not caught."""
        self.generic_visit(node)
        last, node.finalbody = node.finalbody, []
        return [node, *last] if node.handlers else [*node.body, *last]

    def visit_With(self, node: ast.With) -> list[ast.stmt]:
        self.generic_visit(node)
        lock = ast.unparse(node.items[0].context_expr)
        taken, released = ast.parse(f"yield from {lock}.take()\n{lock}.release()").body
        return [taken, ast.Try(body=node.body, handlers=[], orelse=[], finalbody=[released])]


@cache
def stepping() -> dict[str, Any]:
    """Return what is in `_places`, with methods of `Places` that are generators."""
    tree = ast.parse(inspect.getsource(_places))
    made = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Places")
    lines = [line for line in made.body if isinstance(line, ast.FunctionDef)]
    methods = {line.name for line in lines if not line.name.startswith("__")} - {"_forked", "counts"}
    for line in lines:
        if line.name in methods:
            Stepping(methods).visit(line)
            line.body[:0] = ast.parse("if True: yield" if line.name[0] != "_" else "if False: yield").body
    tree.body = [made]
    scope: dict[str, Any] = {**vars(_places)}
    exec(compile(ast.fix_missing_locations(tree), "<places, step by step>", "exec"), scope)  # noqa: S102
    return scope


# ------------------------------------------------------------------------------ a world


class Ticket(_places.Ticket):
    """One with a name, and with a bell."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rung = self.leaving = self.deaf = False


TICKETS = [Ticket(name) for name in "abc"]


class Wait:
    """A step that cannot be gone on from before something is so; a ``loose`` end is for the collector."""

    def __init__(self, ready: Callable[[], bool] = lambda: True, *, loose: bool = False) -> None:
        self.ready, self.loose = ready, loose


class Taking(Wait):
    """Wait for a lock."""


class Lock:
    """The lock of the places: a thread that has it may take it again."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.owner = ""
        self.depth = 0

    def take(self) -> Steps:
        me = self.world.running
        yield Taking(lambda: self.owner in ("", me))
        self.owner, self.depth = me, self.depth + 1

    def _is_owned(self) -> bool:
        return self.owner == self.world.running

    def release(self) -> None:
        self.depth -= 1
        self.owner = self.owner if self.depth else ""


class Stepped(Protocol):
    """What has become of `Places`."""

    limit: int
    inside: set[Ticket]
    queue: dict[Ticket, Callable[[], object]]
    _lock: Lock

    def take(self, ticket: Ticket) -> Steps: ...
    def leave(self, ticket: Ticket) -> Steps: ...
    def join(self, ticket: Ticket, ring: Callable[[], object], most_waiting: float) -> Steps: ...
    def quit(self, ticket: Ticket) -> Steps: ...


class World:
    """Some places, and threads that want one: each runs a program, step by step."""

    def __init__(self, limit: int, programs: Sequence[Program]) -> None:
        self.places: Stepped = stepping()["Places"](limit)
        self.places._lock = self.lock = Lock(self)
        self.running = ""
        self.entered: set[Ticket] = set()
        self.busy: set[Ticket] = set()
        self.tickets = TICKETS[: len(programs)]
        self.stacks: dict[str, list[tuple[Steps, object]]] = {}
        for program, ticket in zip(programs, self.tickets, strict=True):
            ticket.over = ticket.rung = ticket.leaving = ticket.deaf = False
            steps = program(self, ticket)
            self.running = ticket.name
            step: object = None
            while type(step) is not Wait:
                step = steps.send(step)
            self.stacks[ticket.name] = [(steps, step)]
        self.running = ""
        self.paths: dict[str, object] = {}
        self.moved = set(self.stacks)

    def ring(self, me: Ticket) -> bool:
        """Wake one who waits; say whether it can hear that."""
        me.rung = True
        return not me.deaf

    def choices(self) -> Iterator[tuple[str, str]]:
        """Say which threads can go on, and with whose program."""
        for name in self.stacks:
            step = self.last(name)
            if not isinstance(step, Wait) or step.ready():
                yield name, name
            if isinstance(step, Wait) and step.loose:
                yield from ((other, name) for other in self.stacks if other != name and self.stacks[other])

    def last(self, thread: str) -> object:
        """Return what a thread found out in its last step."""
        return self.stacks[thread][-1][1] if self.stacks[thread] else Wait(lambda: False)

    def go(self, thread: str, whose: str) -> None:
        """Let a thread make a step."""
        steps, given = self.stacks[whose].pop()
        self.running = thread
        try:
            found = steps.send(given)
        except StopIteration:
            return
        self.stacks[thread].append((steps, found))

    def go_carefully(self, thread: str, whose: str) -> None:
        """Let a thread make a step, and see that it was none in the wrong direction."""
        queue, inside = [*self.places.queue], {*self.places.inside}
        self.go(thread, whose)
        assert len(self.busy) <= self.places.limit, "too many inside"
        for served in {*queue} & self.places.inside - inside:
            assert all(ticket.leaving for ticket in queue[: queue.index(served)]), "not in order"
        self.moved |= {thread, whose}

    def state(self) -> object:
        """Tell all that matters for what can happen from here."""
        places: dict[str, object] = vars(self.places)
        flags = [(t.over, t.rung, t.leaving, t.deaf) for t in self.tickets]
        shared: list[object] = [places[name] for name in places if name != "_lock"]
        shared += [flags, self.entered, self.busy, self.lock.owner, self.lock.depth]
        for name in self.moved:
            self.paths[name] = told([*map(path, self.stacks[name])])
        self.moved = {
            name for name, stack in self.stacks.items() if stack and isinstance(stack[-1][1], Iterator)
        }
        return told(shared), *self.paths.values()


def path(program: tuple[Steps, object]) -> list[object]:
    """Tell where a program is: at which step, and what it knows."""
    steps: Any = program[0]
    words = [program[1]]
    while hasattr(steps, "gi_frame"):
        frame = steps.gi_frame
        words += [frame.f_code, frame.f_lasti, *frame.f_locals.values()]
        steps = steps.gi_yieldfrom
    return words


PLAIN = {str, int, bool, float, NoneType, CodeType, Ticket}
ITERATED = {dict, OrderedDict, tuple, list}


def told(thing: Any) -> object:
    """Return a hashable value that tells the states of ``thing`` apart; called millions of times."""
    kind: type[object] = thing.__class__
    if kind in PLAIN:
        return thing
    if kind in ITERATED:
        return tuple(map(told, thing))
    if kind is set:
        return frozenset(thing)
    if isinstance(thing, Iterator):
        try:
            return told(thing.__reduce__()[1][0])  # what it has still got
        except RuntimeError:
            return "what it goes through has been changed"
    return kind.__name__


def explore(limit: int, programs: Sequence[Program], most_switches: float) -> int:
    """Run the programs in every order, and see that all is well in each; tell how many states there were.

    ``most_switches``: how often a thread is stopped that could go on.
    """
    seen: dict[object, float] = {}
    ways: list[tuple[list[tuple[str, str]], float]] = [([], most_switches)]
    while ways:
        way, spare = ways.pop()
        world = World(limit, programs)
        for step in way[:-1]:
            world.go(*step)
        for step in way[-1:]:  # which nobody has made yet
            world.go_carefully(*step)
        while seen.get(state := (spare < inf and world.running, world.state()), -1) < spare:
            seen[state] = spare
            choices = sorted(world.choices(), key=lambda step: step != (world.running,) * 2)
            if not choices:
                assert not any(world.stacks.values()), f"forgotten: {world.stacks}"
                assert (world.places.inside, [*world.places.queue]) == (set(), [])
                assert world.entered, "all were refused"
                break
            cost = choices[0][0] == world.running
            ways += [([*way, other], spare - cost) for other in choices[1:] if spare >= cost]
            way.append(choices[0])
            world.go_carefully(*choices[0])
    return len(seen)
