"""A model checker for `Slots`: simulated threads run a few programs in every interleaving.

Every method of `Slots`, and of its base `ReentrancySafe`, is rewritten as a generator that yields wherever a
thread may be preempted: at its start, and after each call, each test and each assignment. So a few programs
can be run in all orders on simulated threads; an order that leads to a state seen before is not followed
further. A ``loose`` program may continue in the middle of another program's step, on the same thread, like a
finaliser.
"""

from __future__ import annotations

import ast
import inspect
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import cache
from math import inf
from types import CodeType, GeneratorType, MethodType, ModuleType, NoneType
from typing import Any, Protocol, TypeAlias, cast

from redouble._internal import reentrancy
from redouble._runtime import slots as slots_module

__all__ = ["NamedLease", "Program", "Steps", "Wait", "World", "explore"]

Steps: TypeAlias = Generator[object, Any, Any]
Program: TypeAlias = "Callable[[World, NamedLease], Steps]"


SHARED = {"leases", "queue", "to_wake", "_deferred"}  # other threads may change these


class StepTransformer(ast.NodeTransformer):
    """Rewrites a method as a generator, which yields each intermediate value and is sent it back."""

    def __init__(self, methods: set[str]) -> None:
        self.methods = methods

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        fn = ast.unparse(node.func)
        if fn == "lock.acquire":
            return cast("ast.YieldFrom", ast.parse("(yield from lock.take())", mode="eval").body)
        if fn == "get_ident":
            return ast.parse("self._lock.world.running", mode="eval").body
        if fn == "self._owned_by_this_thread":
            return node  # no other thread can change the answer
        if fn == "operation":  # one of the methods, or a function
            return ast.YieldFrom(ast.Call(ast.Name("stepwise", ast.Load()), [node], []))
        return ast.YieldFrom(node) if fn.removeprefix("self.") in self.methods else ast.Yield(node)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        return ast.Yield(node) if isinstance(node.ops[0], ast.In | ast.NotIn) else node

    def visit(self, node: ast.AST) -> Any:
        """Yield between reading the truth value of shared state and acting on it."""
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
        """Run the `finally` block after the body: no exception escapes in these programs."""
        self.generic_visit(node)
        last, node.finalbody = node.finalbody, []
        return [node, *last] if node.handlers else [*node.body, *last]

    def visit_With(self, node: ast.With) -> list[ast.stmt]:
        self.generic_visit(node)
        lock = ast.unparse(node.items[0].context_expr)
        # By a local name: when an abandoned generator ends, the attribute may hold another lock.
        held, taken, released = ast.parse(f"held = {lock}\nyield from held.take()\nheld.release()").body
        return [held, taken, ast.Try(body=node.body, handlers=[], orelse=[], finalbody=[released])]


def class_of(module: ModuleType, name: str) -> ast.ClassDef:
    """Return the definition of a class."""
    body = ast.parse(inspect.getsource(module)).body
    return next(node for node in body if isinstance(node, ast.ClassDef) and node.name == name)


def stepwise(result: Any) -> Steps:
    """Run the steps of a method that was rewritten; yield the result of any other function."""
    if type(result) is GeneratorType:
        return (yield from cast("Steps", result))
    return (yield result)


@cache
def stepwise_namespace() -> dict[str, Any]:
    """Return the namespace of the slots module, with the methods of `Slots` rewritten as generators."""
    slots_class = class_of(slots_module, "Slots")
    base = class_of(reentrancy, "ReentrancySafe").body
    slots_class.body[:0] = [
        line
        for line in base
        if isinstance(line, ast.FunctionDef) and line.name not in ("__init__", "_after_fork")
    ]
    lines = [line for line in slots_class.body if isinstance(line, ast.FunctionDef)]
    methods = {line.name for line in lines if not line.name.startswith("__")} - {"_after_fork", "counts"}
    for line in lines:
        if line.name in methods:
            StepTransformer(methods).visit(line)
            line.body[:0] = ast.parse("if True: yield" if line.name[0] != "_" else "if False: yield").body
    tree = ast.Module([slots_class], [])
    scope: dict[str, Any] = {**vars(slots_module), "stepwise": stepwise}
    exec(compile(ast.fix_missing_locations(tree), "<slots, step by step>", "exec"), scope)  # noqa: S102
    return scope


# ------------------------------------------------------------------------- simulation


class NamedLease(slots_module.Lease):
    """A lease with a name, and the state of its waiter; ``gone``: its event loop is closed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.woken = self.leaving = self.gone = False


LEASES = [NamedLease(name) for name in "abc"]


class Wait:
    """A step that blocks until ``ready()``; a ``loose`` one may continue on any thread, as a finaliser."""

    def __init__(self, ready: Callable[[], bool] = lambda: True, *, loose: bool = False) -> None:
        self.ready, self.loose = ready, loose


class LockWait(Wait):
    """Block until the lock is free."""


class Lock:
    """The re-entrant lock of the slots."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.owner = ""
        self.depth = 0

    def take(self) -> Steps:
        me = self.world.running
        yield LockWait(lambda: self.owner in ("", me))
        self.owner, self.depth = me, self.depth + 1
        return True

    def _is_owned(self) -> bool:
        return self.owner == self.world.running

    def release(self) -> None:
        self.depth -= 1
        self.owner = self.owner if self.depth else ""


class StepwiseSlots(Protocol):
    """`Slots` with its methods rewritten as generators."""

    limit: int
    leases: set[NamedLease]
    queue: dict[NamedLease, Callable[[], object]]
    _lock: Lock

    def try_acquire(self, lease: NamedLease) -> Steps: ...
    def release(self, lease: NamedLease) -> Steps: ...
    def enqueue(self, lease: NamedLease, wake: Callable[[], object], max_waiting: float) -> Steps: ...
    def stop_waiting(self, lease: NamedLease) -> Steps: ...


class World:
    """Slots and simulated threads, each of which runs one program step by step."""

    def __init__(self, limit: int, programs: Sequence[Program]) -> None:
        self.slots: StepwiseSlots = stepwise_namespace()["Slots"](limit)
        self.slots._lock = self.lock = Lock(self)
        self.running = ""
        self.entered: set[NamedLease] = set()
        self.busy: set[NamedLease] = set()
        self.leases = LEASES[: len(programs)]
        self.stacks: dict[str, list[tuple[Steps, object]]] = {}
        for program, lease in zip(programs, self.leases, strict=True):
            lease.released = lease.woken = lease.leaving = lease.gone = False
            steps = program(self, lease)
            self.running = lease.name
            step: object = None
            while type(step) is not Wait:
                step = steps.send(step)
            self.stacks[lease.name] = [(steps, step)]
        self.running = ""
        self.paths: dict[str, object] = {}
        self.moved = set(self.stacks)

    def wake(self, me: NamedLease) -> bool:
        """Wake a waiter; return False if it is gone."""
        me.woken = True
        return not me.gone

    def choices(self) -> Iterator[tuple[str, str]]:
        """Yield the threads that can continue, each with the name of the program that it would run."""
        for name in self.stacks:
            step = self.last(name)
            if not isinstance(step, Wait) or step.ready():
                yield name, name
            if isinstance(step, Wait) and step.loose:
                yield from ((other, name) for other in self.stacks if other != name and self.stacks[other])

    def last(self, thread: str) -> object:
        """Return the value that a thread yielded last."""
        return self.stacks[thread][-1][1] if self.stacks[thread] else Wait(lambda: False)

    def step_thread(self, thread: str, program: str) -> None:
        """Run one step of a program on a thread."""
        steps, given = self.stacks[program].pop()
        self.running = thread
        try:
            found = steps.send(given)
        except StopIteration:
            return
        self.stacks[thread].append((steps, found))

    def checked_step(self, thread: str, program: str) -> None:
        """Run one step, and check the limit and the order of admission."""
        queue, before = [*self.slots.queue], {*self.slots.leases}
        self.step_thread(thread, program)
        assert len(self.busy) <= self.slots.limit, "too many admitted"
        for served in {*queue} & self.slots.leases - before:
            assert all(lease.leaving for lease in queue[: queue.index(served)]), "not in order"
        self.moved |= {thread, program}

    def state(self) -> object:
        """Return everything on which further steps depend."""
        slots: dict[str, object] = vars(self.slots)
        flags = [(t.released, t.woken, t.leaving, t.gone) for t in self.leases]
        shared: list[object] = [slots[name] for name in slots if name != "_lock"]
        shared += [flags, self.entered, self.busy, self.lock.owner, self.lock.depth]
        for name in self.moved:
            self.paths[name] = fingerprint([*map(path, self.stacks[name])])
        self.moved = {
            name for name, stack in self.stacks.items() if stack and isinstance(stack[-1][1], Iterator)
        }
        return fingerprint(shared), *self.paths.values()


def path(program: tuple[Steps, object]) -> list[object]:
    """Return the position of a program, and its local variables."""
    steps: Any = program[0]
    words = [program[1]]
    while hasattr(steps, "gi_frame"):
        frame = steps.gi_frame
        words += [frame.f_code, frame.f_lasti, *frame.f_locals.values()]
        steps = steps.gi_yieldfrom
    return words


PLAIN = {str, int, bool, float, NoneType, CodeType, NamedLease}
ITERATED = {dict, OrderedDict, tuple, list, deque}


def fingerprint(thing: Any) -> object:
    """Return a hashable value that is equal for equal states; called millions of times."""
    kind: type[object] = thing.__class__
    if kind in PLAIN:
        return thing
    if kind in ITERATED:
        return tuple(map(fingerprint, thing))
    if kind is set:
        return frozenset(thing)
    if kind is MethodType or kind is GeneratorType:
        return thing.__name__  # the position of a generator is part of the path
    if isinstance(thing, Iterator):
        try:
            return fingerprint(thing.__reduce__()[1][0])  # the items that are left
        except RuntimeError:
            return "the iterated container was changed"
    return kind.__name__


def explore(limit: int, programs: Sequence[Program], most_switches: float) -> int:
    """Run the programs in every interleaving and check each; return the number of states.

    ``most_switches``: how often a thread is preempted.
    """
    seen: dict[object, float] = {}
    unexplored: list[tuple[list[tuple[str, str]], float]] = [([], most_switches)]
    while unexplored:
        steps, spare = unexplored.pop()
        world = World(limit, programs)
        for step in steps[:-1]:
            world.step_thread(*step)
        for step in steps[-1:]:  # the step that is new
            world.checked_step(*step)
        while seen.get(state := (spare < inf and world.running, world.state()), -1) < spare:
            seen[state] = spare
            choices = sorted(world.choices(), key=lambda step: step != (world.running,) * 2)
            if not choices:
                assert not any(world.stacks.values()), f"forgotten: {world.stacks}"
                assert (world.slots.leases, [*world.slots.queue]) == (set(), [])
                assert world.entered, "all were rejected"
                break
            cost = choices[0][0] == world.running
            unexplored += [([*steps, other], spare - cost) for other in choices[1:] if spare >= cost]
            steps.append(choices[0])
            world.checked_step(*choices[0])
    return len(seen)
