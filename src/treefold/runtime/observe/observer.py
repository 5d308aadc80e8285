"""Observers: read a journal that another process may drive, and post commands to its driver.

An observer runs no calls, and writes nothing to the journal but messages.
"""

import os
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, Self

from treefold.core.address import address
from treefold.core.budget import Budget
from treefold.core.call_keys import is_continuation, name_in, named, of_continuation
from treefold.core.commands import (
    AnswerQuestion,
    CancelCall,
    Command,
    ForkTree,
    PauseCall,
    ResumeCall,
    SayToCall,
    read_command,
    refusals_in,
    write_command,
)
from treefold.core.edit import Edit, edit_as_data
from treefold.core.errors import InvalidValueError, UnknownQuestionError, UsageError
from treefold.core.events import QuestionSettled
from treefold.core.fact import replace
from treefold.core.forking import fitting_response
from treefold.core.frames import INTERRUPTED, Frame
from treefold.core.question import (
    LISTED,
    Question,
    QuestionKind,
    asking_node,
    unknown_question,
)
from treefold.core.said import SaidMessage, checked_message
from treefold.core.states import NodeState
from treefold.core.store import Store, TreeRow
from treefold.core.views import NodeView
from treefold.runtime.durable.journal_events import JournalEvents
from treefold.runtime.durable.tree_reader import read_events
from treefold.runtime.durable.unwritten import write_calls, write_trees
from treefold.runtime.observe.observed_tree import ObservedTree, unknown_node
from treefold.runtime.observe.poll import Poll
from treefold.runtime.trees.event_stream import EventStream
from treefold.runtime.trees.watch import Watch
from treefold.stores.opening import open_store

_UNDER_WAY: Final = (NodeState.Waiting.value, NodeState.Running.value)
_KEPT: Final = 32  # trees that stay in memory, the most recently used ones


def attach(source: Store | str | os.PathLike[str]) -> "Observer":
    """Return an observer of a journal: a store, the path of its file, or a ``postgresql://`` URL.

    Any process may drive the journal meanwhile, this one included, or none.

    Raises:
        StoreError: there is no such journal, or it cannot be read.

    Example:
        >>> import treefold
        >>> def add(ctx, a: int, b: int) -> int:
        ...     return a + b
        >>> function, store = treefold.CodeFunction(callable=add), treefold.MemoryStore()
        >>> with treefold.Runtime([function], store=store) as runtime:
        ...     runtime.invoke(function, {"a": 1, "b": 2}).result()
        3
        >>> with treefold.attach(store) as observer:
        ...     [(tree.function, observer.get_view(tree.id).outputs) for tree in observer.trees()]
        [('add', 3)]
    """
    store = open_store(source, create=False)
    # A store that the caller has opened stays open.
    return Observer(store, closing=store if isinstance(source, str | os.PathLike) else None)


class Observer:  # noqa: PLR0904 - the public interface to a journal from outside its driver
    """Reads all that is in a journal, and posts commands to its driver.

    Commands are written to the journal: a running driver executes them within moments, otherwise
    the next driver does when it opens the journal. An observer may be used from any thread, and
    knows each call of its own process as soon as it was made. Results are plain data, as they were
    recorded. ``update_seqnum`` counts recorded events, and is comparable between views of one
    observer only.

    Args:
        store: the journal; the caller closes it.
        closing: a store to close with the observer.

    Example:
        >>> import treefold
        >>> async def deploy(ctx) -> str:
        ...     return await ctx.ask("Deploy?", ["yes", "no"])
        >>> function, store = treefold.CodeFunction(callable=deploy), treefold.MemoryStore()
        >>> from treefold import Runtime, attach
        >>> with Runtime([function], store=store) as runtime, attach(store) as other:
        ...     node = runtime.invoke(function)
        ...     while not (questions := other.questions()):
        ...         pass
        ...     other.answer(questions[0].id, "yes")
        ...     questions[0].text, node.result()
        ('Deploy?', 'yes')
    """

    def __init__(self, store: Store, *, closing: Store | None = None) -> None:
        self._given = store
        self._closing = closing
        self._poll = Poll(store)
        self._lock = threading.Lock()
        self._trees: OrderedDict[int, ObservedTree] = OrderedDict()  # most recently used last
        self._refusals_read = 0  # the broadcasts before that are of earlier answers
        self._posted_keys: dict[int, str] = {}  # of the last pause or resume of each node
        # The result of interrupted(), and the position in the journal that it is valid for.
        self._interrupted: tuple[int, Mapping[int, float]] = (-1, {})

    def __repr__(self) -> str:
        return f"<Observer of {self.name}>"

    @property
    def name(self) -> str:
        """Where the journal is, for messages."""
        return self._given.name

    # Reading

    def trees(self, *, after: int = 0, open: bool | None = None) -> list[TreeRow]:
        """Return the top-level calls, oldest first; the key of one without a key is empty.

        A tree that continues another has the key of that. With *after* only those that came after
        the tree with this id are read, with *open* only those that have not ended, or have.
        """
        write_trees(self._store)
        names: dict[int, str] = {}  # by tree
        found: list[TreeRow] = []
        for tree in self._store.trees(after=after, open=open):
            names[tree.id] = self._name_of(tree, names)
            found.append(replace(tree, key=names[tree.id]))
        return found

    def tree(self, id: int) -> TreeRow:
        """Return the top-level call with this id, as ``trees`` does, without reading the others.

        Raises:
            UnknownNodeError: there is no such top-level call.
        """
        tree = self._next_tree(id - 1)
        if tree is None or tree.id != id:
            raise unknown_node(self._given, id)
        return replace(tree, key=self._name_of(tree, {}))

    def _next_tree(self, after: int) -> TreeRow | None:
        found = self._store.trees(after=after, limit=1)
        return found[0] if found else None

    def _name_of(self, tree: TreeRow, known: Mapping[int, str]) -> str:
        """Return the name in the key of a tree, or of the one that it continues."""
        while is_continuation(tree.key):
            if tree.source in known:
                return known[tree.source]
            source = self._next_tree(tree.source - 1)
            if source is None or source.id != tree.source:
                return ""  # it was deleted
            tree = source
        return name_in(tree.key)

    def get_view(self, id: int) -> NodeView:
        """Return a snapshot of the node with this id and all below it, as of the journal now.

        Raises:
            UnknownNodeError: there is no such node.
        """
        return self._tree_of(id).view(id)

    def tree_of(self, id: int) -> int:
        """Return the id of the top-level call of the node with this id, without reading the tree.

        Raises:
            UnknownNodeError: there is no such node.
        """
        return self._tree_of(id).id

    def find_number(self, number: int | None = None) -> int | None:
        """Return the id of the top-level call with this number, or without one of the newest."""
        write_trees(self._store)
        return self._store.find_number(number)

    def find_key(self, key: str) -> int | None:
        """Return the id of the top-level call with this key, or of the newest that continues it."""
        write_trees(self._store)
        found = self._store.find_key(named(key))
        return None if found is None else self.newest(found)

    def trees_of(self, ids: Collection[int]) -> dict[int, int]:
        """Return the ids of the top-level calls of several nodes, without those that are unknown.

        It takes a store with several owners no longer than ``tree_of`` for one of them.
        """
        store = self._store
        known = store.find_all(ids)
        missing = [id for id in ids if id not in known]
        if missing and write_calls(store, missing):
            known |= store.find_all(missing)
        return known

    @property
    def journal(self) -> str:
        """The permanent unique id of the journal."""
        return self._store.id

    def last(self) -> int:
        """Return a number that grows with every event in the journal."""
        return self._store.last()

    def events(
        self, id: int, after: int = 0, timeout: float | None = None, *, long_texts: bool = True
    ) -> EventStream:
        """Return the events of a node and of all calls below it, until it has ended.

        They are read as ``Runtime.events`` reads them; ``read()`` returns the new ones at once.
        Events that a fork shares with its original tree come before its ``TreeForked``. Without
        *long_texts* each long text is read as an empty one, and responses that are arriving are not
        read, which takes less time and memory.

        Raises:
            UnknownNodeError: there is no such node.
        """
        tree = self._find_tree(id)
        source = JournalEvents(self._given, tree, self._poll, long_texts=long_texts)
        return EventStream(source, self._poll, id, after=after, timeout=timeout)

    def watch(self, id: int, as_of_seq: int = 0, timeout: float | None = None) -> Watch:
        """Wait for a view of a node newer than the one numbered *as_of_seq*.

        ``await`` the watch, call its ``result()``, or iterate over it, with ``for`` or ``async
        for``; it raises TimeoutError if nothing happens for *timeout* seconds.

        Raises:
            UnknownNodeError: there is no such node.
        """
        tree = self._tree_of(id)
        return Watch(self._poll, tree, id, as_of_seq=as_of_seq, timeout=timeout)

    def stack(self, id: int) -> list[Frame]:
        """Return the calls from the top-level one through a node to what it waits for now.

        Raises:
            UnknownNodeError: there is no such node.
        """
        tree = self._tree_of(id)
        frames = tree.stack(id)
        if not self.interrupted(tree.id):
            return frames
        return [
            replace(frame, state=INTERRUPTED) if frame.state in _UNDER_WAY else frame
            for frame in frames
        ]

    @property
    def is_driven(self) -> bool:
        """Whether a process, this one included, drives the journal now."""
        return self._store.is_owned()

    def interrupted(self, tree: int | None = None) -> Mapping[int, float]:
        """Return the trees that a process left open when it ended, by their ids.

        They are open and not parked, and no process drives them. A tree of a shared store that no
        worker has begun is not one of them: it waits. The values are the times of their last
        events, in seconds since the epoch. With the id of a *tree* no other is looked at.
        """
        store = self._store
        if tree is not None:
            row = self._next_tree(tree - 1)
            is_it = row is not None and row.id == tree and row.open and _is_stopped(row, store)
            return {tree: row.last or row.started or 0.0} if row is not None and is_it else {}
        if store.cluster is not None:
            # A worker may die at any time, which no event tells.
            return self._find_interrupted(store)
        if self.is_driven:
            return {}
        position = store.last()
        valid_for, found = self._interrupted
        if valid_for != position:
            found = self._find_interrupted(store)
            self._interrupted = position, found
        return found

    def _find_interrupted(self, store: Store) -> dict[int, float]:
        return {
            row.id: row.last or row.started or 0.0
            for row in store.trees(open=True)
            if _is_stopped(row, store)
        }

    def questions(self, *, node: int | None = None, limit: int | None = None) -> list[Question]:
        """Return the open questions, oldest first, without those whose answer has been posted.

        With the id of a *node* only those of this call, and not more than *limit*.
        """
        return self._store.questions(node=node, limit=limit)

    # Commands

    def answer(
        self, id: str, text: Any = "", *, args: Mapping[str, Any] | None = None, token: str = ""
    ) -> None:
        """Answer the question with this id, as ``Runtime.answer`` does.

        A program that does not know whether its answer was taken may give it again with the same
        *token*, a unique text: it is one answer.

        Raises:
            UnknownQuestionError: there is no such question, or it has been answered.
            InvalidValueError: the answer is not valid for it; the question stays open.
        """
        node = asking_node(id)
        asked = [] if node is None else self._store.questions(node=node)
        questions = {question.id: question for question in asked}
        if id not in questions:
            if token and self._is_taken(id, token):
                return
            known = asked or self._store.questions(limit=LISTED + 1)
            raise unknown_question(id, [question.id for question in known])
        answer = questions[id].checked(text, args)
        said = text if questions[id].form is None else answer.text
        token = token or _new_id()
        command = AnswerQuestion(id, said, None if args is None else {**args}, token)
        body = write_command(command, "what is in an answer")
        self._note_refusals()
        # The reply to the first attempt may be lost, and the answer be taken before the second.
        if not self._store.post(body, question=id) and not self._is_taken(id, token):
            raise UnknownQuestionError(f"question {id!r} has been answered already")

    def _is_taken(self, id: str, token: str) -> bool:
        """Whether the answer with this token was posted, or is the one that was taken."""
        node = asking_node(id)
        tree = None if node is None else self._find(node)
        if tree is None:
            return False
        posted = [one for one in self._posted(tree) if isinstance(one, AnswerQuestion)]
        if any((one.id, one.token) == (id, token) for one in posted):
            return True
        events = read_events(self._store, tree, long_texts=False)
        settled = [event for event in events if isinstance(event, QuestionSettled)]
        return any(one.id == id and one.answer and one.answer.token == token for one in settled)

    def refusal(self, id: str | int) -> str | None:
        """Return why the program refused the last answer to a question that was posted here.

        It knows more than the form of the question says. With the id of a node: why the last pause
        or resume of it was refused that was posted here. None if it was not, or not yet.
        """
        _, lines = self._store.read_broadcasts(self._refusals_read)
        key = AnswerQuestion(id, "").key if isinstance(id, str) else self._posted_keys.get(id, "")
        return refusals_in(lines).get(key)

    def _note_refusals(self) -> None:
        """Note which refusals are of earlier commands.

        They are broadcast, and some stores keep broadcasts only while there is a reader.
        """
        self._refusals_read, _ = self._store.read_broadcasts(self._refusals_read)

    def cancel(self, id: int, reason: str = "cancelled") -> None:
        """Ask the driver to cancel the node with this id, and all below it.

        Raises:
            UnknownNodeError: there is no such node.
            UsageError: it has ended.
        """
        command = CancelCall(id, _checked(reason))
        _check_open(self.get_view(id), "cancelled")
        self._post(command)

    def pause(self, id: int, reason: str = "it was paused") -> None:
        """Ask the driver to pause the node with this id, and all below it, as ``Runtime.pause``.

        Raises:
            UnknownNodeError: there is no such node.
            UsageError: it has ended.
        """
        command = PauseCall(id, _checked(reason), _new_id())
        _check_open(self.get_view(id), "paused")
        self._note_refusals()
        self._post(command)

    def say(self, id: int, text: str, *, when: Literal["next", "idle"] = "next") -> SaidMessage:
        """Ask the driver to say something to an agent, as ``Runtime.say``.

        ``get_view(id).messages`` has it when the driver has taken it.

        Raises:
            UnknownNodeError: there is no such node.
            UsageError: it has ended, or is not the call of an agent.
        """
        text, checked = checked_message(text, when)
        view = self.get_view(id)
        _check_open(view, "told anything")
        if not view.is_agent:
            raise UsageError(f"{_named(view)} is not the call of an agent, and reads no messages")
        said = SaidMessage(id=os.urandom(8).hex(), text=text, when=checked)
        command = SayToCall(id, text, checked, said.id)
        self._note_refusals()
        self._posted_keys[id] = command.key
        self._send(id, write_command(command))
        return said

    def resume(self, id: int, *, budget: Budget | None = None, without: Sequence[str] = ()) -> None:
        """Ask the driver to resume everything paused in the node with this id and below it.

        A run that is held back continues *without* the guards of these names: a person's decision,
        which is recorded. An imported run is held back until it is resumed so.

        A top-level call that has failed or was cancelled continues in a fork of its tree: the one
        that ``newest`` returns then. That has the *budget*, if given, instead of its own.

        Raises:
            UnknownNodeError: there is no such node.
            UsageError: there is nothing to resume.
        """
        tree = self._tree_of(id).id
        id = self.newest(id) if id == tree else id
        # Before the view: a pause that is executed meanwhile is in one of them at least.
        posted = self._posted(self.tree_of(id))
        view = self.get_view(id)
        paused = _paused_in(view, posted, is_short=budget is not None)
        if view.state is NodeState.Success:
            _check_open(view, "resumed")
        elif view.state.final and id != self.tree_of(id):
            run = address(view.path.partition(".")[0])
            raise UsageError(f"{_named(view)} has ended; resume {run}")
        elif not (without or view.state.final or view.held_back or paused):
            raise UsageError(f"{_named(view)} is not paused, nor is anything below it")
        self._note_refusals()
        ended, names = view.state.final, tuple(without)
        self._post(ResumeCall(id, budget, names, ended=ended, paused=paused, id=_new_id()))

    def newest(self, tree: int) -> int:
        """Return the tree that continues the failed *tree*, or the one that continues that, ..."""
        while (found := self._store.find_key(of_continuation(tree))) is not None:
            tree = found
        return tree

    def fork(
        self,
        id: int,
        at: int | None = None,
        edit: Edit | None = None,
        *,
        without: Sequence[str] = (),
    ) -> str:
        """Ask the driver to fork the tree at the node with this id, as ``Runtime.fork`` does.

        Returns:
            A key for ``forked``.

        Raises:
            UnknownNodeError: there is no such node.
            InvalidValueError: the edit does not fit the call, or has no JSON form.
        """
        view = self.get_view(id)
        fitting_response(view.fn, at, edit, is_agent=view.is_agent)
        if at and at > (had := self._tree_of(id).responses(id)):
            raise InvalidValueError(f"{_named(view)} has had {had} responses, and not {at}")
        if edit is not None and not isinstance(edit.model, str | None):
            raise InvalidValueError(
                f"an edit for another process must give the name of a model, got {edit.model!r}"
            )
        key = f"#fork {os.urandom(8).hex()}"
        command = ForkTree(id, key, at, edit_as_data(edit), tuple(without))
        body = write_command(command, "an edit")
        # A refusal is broadcast, and some stores keep broadcasts only while there is a reader.
        self._store.read_broadcasts()
        self._send(id, body)
        return key

    def forked(self, key: str) -> int | None:
        """Return the id of the top-level node of a fork, or None if it has not been made yet.

        Raises:
            UsageError: the driver refused to make it; the message says why.
        """
        found = self._store.find_key(key)
        if found is None:
            _, lines = self._store.read_broadcasts()
            if (why := refusals_in(lines).get(key)) is not None:
                raise UsageError(why)
        return found

    def _post(self, command: CancelCall | PauseCall | ResumeCall) -> None:
        """Post a command, unless the last one about the same node asks for the same."""
        posted = self._posted(self.tree_of(command.node))
        earlier = [one for one in posted if getattr(one, "node", None) == command.node]
        last = earlier[-1] if earlier else None
        if isinstance(last, PauseCall | ResumeCall) and isinstance(command, PauseCall | ResumeCall):
            is_same = command == replace(last, id=command.id)
            command = last if is_same else command
        else:
            # A call may have ignored the last cancellation, which stays posted until it ends.
            is_same = command == last and not isinstance(command, CancelCall)
        if not isinstance(command, CancelCall):
            self._posted_keys[command.node] = command.key
        if not is_same:
            self._send(command.node, write_command(command))

    def _send(self, node: int, body: str) -> None:
        """Post a message for the owner of a node."""
        self._store.post(body, node=node)

    def _posted(self, tree: int) -> list[Command]:
        """Return the commands for a tree, of all observers, that have not been executed yet."""
        found: list[Command] = []
        for message in self._store.inbox(drives=self._tree_of(tree).drives()):
            with suppress(InvalidValueError):
                found.append(read_command(message.body))
        return found

    # Closing

    def close(self) -> None:
        """Stop observing; waiters for a view get a ClosedError. Closing twice is allowed."""
        self._poll.close()
        if self._closing is not None:
            self._closing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    @property
    def _store(self) -> Store:
        self._poll.check_open()
        return self._given

    def _tree_of(self, id: int) -> ObservedTree:
        """Return the tree of the node with this id."""
        found = self._find_tree(id)
        with self._lock:
            tree = self._trees.pop(found, None) or ObservedTree(self._given, found, self._poll)
            self._trees[found] = tree
            if len(self._trees) > _KEPT:
                self._trees.popitem(last=False)
        return tree

    def _find_tree(self, id: int) -> int:
        found = self._find(id) if isinstance(id, int) else None
        if found is None:
            raise unknown_node(self._given, id)
        return found

    def _find(self, id: int) -> int | None:
        store = self._store
        found = store.find(node=id)
        if found is None and write_calls(store, [id]):
            found = store.find(node=id)
        return found


def _is_stopped(row: TreeRow, store: Store) -> bool:
    """Whether a process left an open tree when it ended."""
    has_begun = row.started is not None or store.cluster is None
    return not row.parked and not row.driven and has_begun


def _named(view: NodeView) -> str:
    return f"{view.fn} ({address(view.path)})"


def _new_id() -> str:
    return os.urandom(8).hex()


def _check_open(view: NodeView, what: str) -> None:
    if view.state.final:
        raise UsageError(f"{_named(view)} has ended ({view.state}), and cannot be {what} any more")


def is_paused(view: NodeView, *, is_short: bool = False) -> bool:
    """Whether a call, or one below it, is paused until a person resumes it.

    With *is_short* it may also wait for a larger budget.
    """
    return bool(_paused_in(view, is_short=is_short))


def _paused_in(
    view: NodeView, posted: Iterable[Command] = (), *, is_short: bool
) -> tuple[str, ...]:
    """Return what a call, and those below it, wait for until they are resumed.

    These are the ids of questions, and of the pauses that are *posted*.
    """
    kinds = {QuestionKind.Paused, QuestionKind.Budget} if is_short else {QuestionKind.Paused}
    found, nodes, views = list[str](), set[int](), [view]
    while views:
        view = views.pop()
        nodes.add(view.id)
        found += [question.id for question in view.questions if question.kind in kinds]
        views.extend(view.children)
    pauses = [one for one in posted if isinstance(one, PauseCall) and one.node in nodes]
    return (*found, *(one.id for one in pauses if one.id))


def _checked(reason: str) -> str:
    if not isinstance(reason, str):
        raise InvalidValueError(f"a reason is some text, not {reason!r}")
    return reason
