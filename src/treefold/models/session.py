"""One conversation over the wire, in any protocol.

Owns the history and the sequence of steps: encode, send, decode, store. The dialect knows what the
bytes mean, the endpoint how they are transported.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from typing import Final

from treefold.core.errors import (
    DefinitionError,
    InvalidValueError,
    ModelProviderException,
    ModelRefusedError,
    OtherProtocolError,
    SafeExecutionError,
    UsageError,
)
from treefold.core.escaping import one_line
from treefold.core.events import Failure
from treefold.core.exchange import PLAIN, Exchange, Finish
from treefold.core.model import Session
from treefold.core.model_events import (
    AttemptFailed,
    ModelEvent,
    Noticed,
    PartCompleted,
    ResponseEnded,
    ResponseStarted,
)
from treefold.core.provider_errors import provider_exception
from treefold.core.transcript import ToolResult, ToolUse, TranscriptPart, UserText
from treefold.core.usage import NO_USAGE, TokenUsage
from treefold.models.attempt import Attempt, Endpoint
from treefold.models.decoder import Decoder, RefusedError, Response
from treefold.models.dialect import Dialect
from treefold.models.request_error import RequestError, remedy_for
from treefold.models.retry import Retry, Timers
from treefold.models.sdk_errors import sdk_exception
from treefold.models.translation import to_dialect

_TOOLS_NOTICE: Final = (
    "the server reports that {model} at {address} cannot call functions ({message}); the request is"
    " repeated without them, for {what} only. Use a model that can call functions, or check how the"
    " server has to be started for it"
)

_SCHEMA_NOTICE: Final = (
    "the server at {address} rejected a request for the result of {model} by a response schema"
    " ({message}); the model is offered the function return_result instead. Set"
    " results_by_schema=False in the profile to offer it in the first request"
)

_RETRYING: Final = "%s failed (%s); retrying in %g s"
_LONGEST: Final = 300  # characters of an error in the log
_LONG_MESSAGE: Final = 20_000  # characters, which take about a millisecond
_MAX_TICKS: Final = 10  # of the event loop, for an abandoned stream to be closed

_log = logging.getLogger("treefold.models")


class WireSession(Session):
    """A Session that exchanges messages of a dialect with an endpoint."""

    def __init__(
        self,
        dialect: Dialect,
        endpoint: Endpoint,
        retry: Retry,
        timers: Timers,
        exchanges: Sequence[Exchange] = (),
        *,
        provider: str,
        sdk: str = "",
    ) -> None:
        self._provider = provider  # the name of the model's class
        self._sdk = sdk  # the name of the SDK's module
        self._dialect = dialect
        self._endpoint = endpoint
        self._retry = retry
        self._timers = timers
        self._exchanges: list[Exchange] = []
        self._history: list[bytes] = []  # the messages, encoded as each request repeats them
        self._transcript: list[TranscriptPart] = []
        self._pending: list[ToolUse] = []  # calls without a result
        self._ends: list[int] = []  # where each exchange ends in the transcript
        self._usage = NO_USAGE
        self._uncommitted = NO_USAGE  # the part of it since the last exchange
        self._busy = False
        self._bad_outputs = 0  # of the current request
        used = set[str]()  # the ids of all calls so far
        for number, exchange in enumerate(exchanges, 1):
            if not isinstance(exchange, Exchange):
                raise InvalidValueError(
                    f"exchanges must be Exchange objects, got {type(exchange).__name__}:"
                    " restore them with Exchange.from_dict"
                )
            if exchange.dialect not in {dialect.name, PLAIN}:
                raise OtherProtocolError(
                    f"the conversation was saved as {exchange.dialect} and cannot be continued as"
                    f" {dialect.name}: open it with a model that speaks the same protocol",
                    dialect.name,
                )
            following = exchanges[number] if number < len(exchanges) else None
            self._restore(exchange, following, used)
        # Requests the result by a call; used if the server rejects the response schema.
        self._fallback: Dialect | None = None
        if dialect.prefers_schema and not any(
            isinstance(part, ToolUse) for part in self._transcript
        ):
            self._fallback, self._dialect = dialect, dialect.without_functions()

    def __repr__(self) -> str:
        return f"<Session with {self._dialect.model}, {len(self._exchanges)} exchanges>"

    @property
    def exchanges(self) -> Sequence[Exchange]:
        return self._exchanges

    @property
    def transcript(self) -> Sequence[TranscriptPart]:
        return self._transcript

    def parts(self, number: int) -> Sequence[TranscriptPart]:
        begin = self._ends[number - 1] if number else 0
        return self._transcript[begin : self._ends[number]]

    @property
    def pending(self) -> Sequence[ToolUse]:
        return self._pending

    @property
    def usage(self) -> TokenUsage:
        return self._usage

    async def send(self, *inputs: UserText | ToolResult) -> AsyncGenerator[ModelEvent, None]:
        sent = self._encode(inputs)
        await self._acquire()
        number = 1
        try:
            while True:
                attempt = Attempt(
                    self._endpoint,
                    self._dialect.decoder(),
                    self._timers,
                    self._dialect.profile.max_response_bytes,
                )
                decoder = attempt.decoder
                try:
                    await attempt.open(self._dialect.body(self._history, sent))
                    yield ResponseStarted()
                    while data := await attempt.read():
                        for event in decoder.feed(data):
                            yield event
                    for event in decoder.end():
                        yield event
                    response = attempt.response()
                    await _make_way(response)
                    break
                except RequestError as failure:
                    error = self._endpoint.scrub(failure)
                except RefusedError as refusal:
                    raise self._refusal(refusal) from None
                finally:
                    usage = decoder.usage
                    self._usage += usage
                    self._uncommitted += usage
                    await attempt.close()
                if notice := self._adapt(error, number):
                    yield Noticed(notice)
                    continue
                wait = self._retry_delay(error, number)
                inner = self._sdk_exception(error)
                yield AttemptFailed(number, _failure(error), wait, usage, inner)
                _log.warning(_RETRYING, self._dialect.model, one_line(str(error), _LONGEST), wait)
                await self._retry.sleep(wait)
                number += 1
        finally:
            self._busy = False
        for event in self._commit(sent, response, decoder):
            yield event

    def keep(self, text: str, *inputs: UserText | ToolResult) -> Exchange:
        sent = self._encode(inputs)
        exchange = Exchange(
            dialect=self._dialect.name,
            sent=tuple(sent),
            received=(self._dialect.write_response(text, ()),),
            finish=Finish.ANSWERED,
            usage=self._uncommitted,
        )
        self._append(exchange)
        self._uncommitted = NO_USAGE
        return exchange

    async def _acquire(self) -> None:
        # The event loop closes a stream that was abandoned without being closed; wait for that.
        for _ in range(_MAX_TICKS):
            if self._busy:
                await asyncio.sleep(0)
        if self._busy:
            raise SafeExecutionError(
                "this session already waits for a response: read its stream to the end, or close it"
            )
        self._busy = True
        self._bad_outputs = 0

    def _encode(self, inputs: Sequence[UserText | ToolResult]) -> list[str]:
        texts: list[UserText] = []
        results: dict[str, ToolResult] = {}
        for part in inputs:
            if isinstance(part, UserText):
                text = part.text
                texts.append(part)
            elif isinstance(part, ToolResult) and part.tool_use_id not in results:
                text = part.content
                results[part.tool_use_id] = part
            else:
                raise InvalidValueError(
                    "send UserText and ToolResult only, one result for each call"
                )
            if not isinstance(text, str):
                raise InvalidValueError(f"text for a model must be a str, got {text!r}: use str()")
            if isinstance(part, UserText) and not text.strip():
                raise InvalidValueError("there is nothing to send: the text is empty")
        pending = {call.id for call in self._pending}
        if unknown := results.keys() - pending:
            raise UsageError(f"the model made no such call: {', '.join(sorted(unknown))}")
        if missing := pending - results.keys():
            raise UsageError(f"these calls have no result yet: {', '.join(sorted(missing))}")
        is_paused = bool(self._exchanges) and self._exchanges[-1].finish is Finish.PAUSED
        if is_paused and inputs:
            raise UsageError("the response is paused: send nothing, and the model continues it")
        if not inputs and not is_paused:
            raise UsageError("there is nothing to send: give a UserText, or the results of calls")
        return self._dialect.write([(call, results[call.id]) for call in self._pending], texts)

    # Outcomes of an attempt

    def _commit(
        self, sent: Sequence[str], response: Response, decoder: Decoder
    ) -> list[ModelEvent]:
        exchange = Exchange(
            dialect=self._dialect.name,
            sent=tuple(sent),
            received=(response.message,) if response.message is not None else (),
            finish=response.finish,
            usage=self._uncommitted,
            response_id=decoder.response_id,
            response_model=decoder.response_model,
            by_schema=self._dialect.settings.response_schema is not None,
        )
        parts = self._append(exchange)
        self._uncommitted = NO_USAGE
        notices, self._dialect.notices = self._dialect.notices, []
        end = ResponseEnded(exchange, response.reason)
        return [*map(Noticed, notices), *map(PartCompleted, parts), end]

    def _append(self, exchange: Exchange) -> list[TranscriptPart]:
        """Add *exchange* to the history, all of it or nothing, and return the parts received."""
        dialect, position = self._dialect, len(self._history)
        messages: list[bytes] = []
        sent: list[TranscriptPart] = []
        received: list[TranscriptPart] = []
        for message in exchange.sent:
            sent += dialect.read(message, position + len(messages), self._pending)
            messages.append(message.encode())
        for message in exchange.received:
            parts, repeated = dialect.read_response(message, position + len(messages))
            received += parts
            messages.append(repeated.encode())
        self._history += messages
        self._transcript += sent + received
        self._pending = [part for part in received if isinstance(part, ToolUse)]
        self._exchanges.append(exchange)
        self._ends.append(len(self._transcript))
        return received

    def _restore(self, exchange: Exchange, following: Exchange | None, used: set[str]) -> None:
        number = len(self._exchanges) + 1
        try:
            self._append(to_dialect(exchange, self._dialect, self._pending, following, used))
            used.update(call.id for call in self._pending)
            self._usage += exchange.usage
        except (AttributeError, KeyError, TypeError, ValueError, StopIteration) as error:
            raise InvalidValueError(
                f"exchange {number} is not a valid {self._dialect.name} exchange: {error!r}"
            ) from None

    def _refusal(self, refusal: RefusedError) -> ModelRefusedError:
        return ModelRefusedError(self._dialect.model, refusal.reason, refusal.text)

    def _adapt(self, error: RequestError, number: int) -> str:
        """Change the form of the request if the server rejects it; return a notice, or ""."""
        dialect = self._dialect
        if error.refuses_tools and dialect.may_lack_functions and dialect.functions:
            try:
                self._dialect = dialect.without_functions()
            except DefinitionError as fault:
                raise self._exception(error, str(fault), number) from None
            by_schema = self._dialect.settings.response_schema is not None
            return self._format_notice(_TOOLS_NOTICE, error, what="JSON" if by_schema else "text")
        if self._fallback is not None and error.refuses_schema:
            # Only once: the server may reject functions as well.
            self._dialect, self._fallback = self._fallback, None
            return self._format_notice(_SCHEMA_NOTICE, error)
        return ""

    def _format_notice(self, notice: str, error: RequestError, **more: str) -> str:
        address = self._endpoint.address
        return notice.format(
            model=self._dialect.model, address=address, message=error.message, **more
        )

    def _retry_delay(self, error: RequestError, number: int) -> float:
        """Return the seconds to wait after attempt *number* failed; raise if it was the last."""
        retryable = error.is_transient
        if error.is_refused_connection and not self._retry.tries_refused(self._endpoint.address):
            retryable = False
        wait = self._retry.wait_before(number, error.retry_after) if retryable else None
        if error.is_bad_output:
            # Waiting does not help, and a model that fails twice will probably fail again.
            self._bad_outputs += 1
            wait = None if wait is None or self._bad_outputs > 1 else 0.0
        if wait is not None:
            return wait
        remedy = remedy_for(
            error,
            key_name=self._endpoint.key_name,
            address=self._endpoint.address,
            longest=self._retry.longest,
            by_schema=self._fallback is not None,
        )
        raise self._exception(error, remedy, number) from None

    def _exception(self, error: RequestError, remedy: str, number: int) -> ModelProviderException:
        """Return the exception to raise for *error*, with the SDK's exception as ``inner``."""
        return provider_exception(
            self._provider,
            self._dialect.model,
            f"{error.message} ({remedy})",
            status=error.status,
            attempts=number,
            inner=self._sdk_exception(error),
            is_too_long=error.is_too_long,
            context_window=error.context_window,
        )

    def _sdk_exception(self, error: RequestError) -> BaseException | None:
        return sdk_exception(self._sdk, error, self._endpoint.address)


async def _make_way(response: Response) -> None:
    """Let others run before a long message is read, which takes as long as writing it."""
    if response.message is not None and len(response.message) > _LONG_MESSAGE:
        await asyncio.sleep(0)


def _failure(error: RequestError) -> Failure:
    kind = f"HTTP {error.status}" if error.status is not None else error.kind or "connection"
    return Failure(kind, error.message)
