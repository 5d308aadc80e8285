"""Serve functions as the tools of an MCP server: each call is a top-level node."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, Final

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError

from treefold.agents.approval import ModelCallGate
from treefold.agents.calls import error_text
from treefold.core.answer_form import fields_of, form_in_words
from treefold.core.call_request import CallRequest
from treefold.core.decisions import RuleChain, Rules
from treefold.core.errors import InvalidValueError, UnknownQuestionError
from treefold.core.function import Function, Node
from treefold.core.question import Question
from treefold.core.suggestions import did_you_mean
from treefold.core.views import NodeView
from treefold.mcp.content import to_error_result, to_result
from treefold.mcp.output import OutputSchema
from treefold.runtime.runtime import Runtime
from treefold.version import __version__

_ANSWER: Final = "answer"
# What a form of the protocol may say of a field.
_KNOWN: Final = frozenset({
    "type", "title", "description", "enum", "format", "default",
    "minLength", "maxLength", "minimum", "maximum",
})  # fmt: skip

Request = ServerRequestContext[Any, Any]


class ToolServer:
    """Handles requests of clients for *functions*, which *runtime* runs."""

    def __init__(self, functions: Mapping[str, Function], runtime: Runtime) -> None:
        self._functions = functions
        self._outputs = {name: OutputSchema.of(function) for name, function in functions.items()}
        self._runtime = runtime
        if runtime.store is None:
            # The client is asked, or the call is cancelled: the questions need no warnings.
            runtime.questions()

    def server(self, name: str) -> "Server[Any]":
        """Return the SDK's server with these handlers."""
        return Server(
            name,
            version=__version__,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )

    async def _list_tools(
        self, request: Request, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[_tool(one, self._outputs[one.name]) for one in self._functions.values()]
        )

    async def _call_tool(
        self, request: Request, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        function = self._functions.get(params.name)
        if function is None:
            raise MCPError(types.INVALID_PARAMS, self._unknown(params.name))
        node = self._start(function, params.arguments or {})
        async with asyncio.TaskGroup() as group:
            following = group.create_task(self._follow(request, node))
            result = await _call_result(node, self._outputs[params.name])
            following.cancel()
        return result

    def _start(self, function: Function, args: Mapping[str, Any]) -> Node:
        """Start a call, which permissions and people decide about: a model asks for it."""
        rules = RuleChain([self._runtime.rules])
        gate = ModelCallGate(rules) if function.ask or rules != RuleChain([Rules()]) else None
        return self._runtime.get_ctx().start(CallRequest(function, dict(args), gate=gate))

    async def _follow(self, request: Request, node: Node) -> None:
        """Report the progress of *node* to the client, and pass on its questions."""
        try:
            await self._forward(request, node)
        except Exception as error:  # noqa: BLE001 - the call must end, whatever the client does
            node.cancel(f"its progress could not be reported to the client: {error_text(error)}")

    async def _forward(self, request: Request, node: Node) -> None:
        finished = 0
        asked: set[str] = set()
        async for view in self._runtime.watch(node):
            below = list(_below(view))
            done = sum(child.state.final for child in below)
            if done > finished:
                finished = done
                await request.session.report_progress(done, message=f"{done} calls done")
            for question in (q for one in (view, *below) for q in one.questions):
                if question.id not in asked:
                    asked.add(question.id)
                    await self._elicit(request, node, question)

    async def _elicit(self, request: Request, node: Node, question: Question) -> None:
        session = request.session
        if why := _why_not_asked(session):
            if self._runtime.store is None:  # otherwise anyone can answer by way of the journal
                node.cancel(
                    f"it asks a person {question.text!r}, and {why}; serve it with a store"
                    " (treefold mcp --store run.db), and answer with: treefold answer"
                )
            return
        text = question.text
        while True:
            reply = await session.elicit_form(text, _form(question), request.request_id)
            if reply.action != "accept" or not reply.content:
                node.cancel(f"its question {question.text!r} was not answered")
                return
            try:
                # In a thread, which may wait for a lock of another program; the loop must not.
                given: Any = dict(reply.content)
                answer = given if _is_flat(question) else given.get(_ANSWER, "")
                answer = str(answer) if question.form is None else answer
                await asyncio.to_thread(self._runtime.answer, question.id, answer)
            except UnknownQuestionError:  # answered elsewhere
                return
            except InvalidValueError as error:
                text = f"{question.text}\n({error})"
            else:
                return

    def _unknown(self, name: str) -> str:
        hint = did_you_mean(name, self._functions, then=" ")
        return f"there is no tool {name!r}; {hint}tools: {', '.join(self._functions)}"


def _why_not_asked(session: ServerSession) -> str:
    """Return why the client cannot be asked a question during a call; empty if it can be."""
    supported = session.client_capabilities
    if supported is None or supported.elicitation is None:
        return "this client does not support elicitation"
    if not session.can_send_request:
        # From 2026-07-28 on a server may not send requests: the call has to end, and the client
        # repeats it with the answer.
        return f"treefold cannot ask clients of protocol {session.protocol_version} yet"
    return ""


async def _call_result(node: Node, output: OutputSchema | None) -> types.CallToolResult:
    try:
        return to_result(await node, output)
    except asyncio.CancelledError:
        node.cancel("the client cancelled the call or disconnected")
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - every failure is reported to the client
        return to_error_result(error_text(error))


def _tool(function: Function, output: OutputSchema | None) -> types.Tool:
    return types.Tool(
        name=function.name,
        description=function.description or None,
        input_schema=dict(function.input_schema),
        output_schema=None if output is None else output.schema,
        annotations=types.ToolAnnotations(idempotent_hint=True) if function.repeatable else None,
    )


def _below(view: NodeView) -> Iterator[NodeView]:
    for child in view.children:
        yield child
        yield from _below(child)


def _form(question: Question) -> dict[str, Any]:
    """Return the form by which a client asks its user: an object of simple fields."""
    answer: dict[str, Any] = {"type": "string"}
    if question.choices:
        answer["enum"] = list(question.choices)
    elif question.form is not None and _is_flat(question):
        fields = fields_of(question.form)
        properties = {field.name: _plain(field.form) for field in fields}
        required = [field.name for field in fields if field.is_required]
        return {"type": "object", "properties": properties, "required": required}
    elif question.form is not None and _is_simple(question.form):
        answer = _plain(question.form)
    elif question.form is not None:
        answer["description"] = f"as JSON: {form_in_words(question.form, question.form)}"
    return {"type": "object", "properties": {_ANSWER: answer}, "required": [_ANSWER]}


def _is_flat(question: Question) -> bool:
    """Whether a question asks for an object of fields that a client can show."""
    fields = [] if question.form is None else fields_of(question.form)
    return bool(fields) and all(_is_simple(field.form) for field in fields)


def _is_simple(form: Mapping[str, Any]) -> bool:
    return form.get("type") in {"string", "integer", "number", "boolean"}


def _plain(form: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the protocol knows of the schema of a field."""
    return {name: value for name, value in form.items() if name in _KNOWN}
