"""One conversation over the wire, whatever the protocol.

Owns the history and the order of things: write, send, read, keep. What the bytes mean is the
dialect's business, how they travel the endpoint's.
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
from treefold.core.usage import TokenUsage
from treefold.models.attempt import Attempt, Endpoint
from treefold.models.decoder import RefusedError, Response
from treefold.models.dialect import Dialect
from treefold.models.request_error import RequestError, advice
from treefold.models.retry import Retry, Timers
from treefold.models.sdk_errors import sdk_exception
from treefold.models.translation import translated

_NO_TOOLS: Final = (
    "{model} at {address} cannot call functions, says the server ({message}); it is asked for"
    " {what} only. Use a model that can, or see how the server has to be started for it"
)

_NO_SCHEMA: Final = (
    "{model} at {address} was asked for its result by a response schema, and the server refused the"
    " request ({message}); it is offered the function return_result instead. Set"
    " results_by_schema=False in the profile to offer it in the first request"
)

_RETRYING: Final = "%s failed (%s); trying again in %g s"
_TICKS: Final = 10

_log = logging.getLogger("treefold.models")


class WireSession(Session):
    """A Session that speaks a dialect to an endpoint."""

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
        self._provider = provider  # the class of the model
        self._sdk = sdk  # the module of the provider's SDK
        self._dialect = dialect
        self._endpoint = endpoint
        self._retry = retry
        self._timers = timers
        self._exchanges: list[Exchange] = []
        self._history: list[bytes] = []  # each message as it is sent again
        self._transcript: list[TranscriptPart] = []
        self._asked: list[ToolUse] = []  # calls that wait for their results
        self._ends: list[int] = []  # of each exchange in the transcript
        self._usage = TokenUsage()
        self._lost = TokenUsage()  # by attempts that came to nothing, since the last exchange
        self._busy = False
        self._bad_outputs = 0  # of the current request
        for number, exchange in enumerate(exchanges, 1):
            if not isinstance(exchange, Exchange):
                raise InvalidValueError(
                    f"exchanges are made by Exchange.from_dict, which {type(exchange)} was not"
                )
            if exchange.dialect not in {dialect.name, PLAIN}:
                raise OtherProtocolError(
                    f"the conversation was saved as {exchange.dialect} and cannot go on as"
                    f" {dialect.name}: open it with a model that speaks the same protocol"
                )
            self._restore(exchange, is_last=number == len(exchanges))
        # Asks for the result by a call, for a server that refuses the schema.
        self._by_call: Dialect | None = None
        if dialect.prefers_schema and not any(
            isinstance(part, ToolUse) for part in self._transcript
        ):
            self._by_call, self._dialect = dialect, dialect.without_functions()

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
        return self._asked

    @property
    def usage(self) -> TokenUsage:
        return self._usage + self._lost

    async def send(self, *inputs: UserText | ToolResult) -> AsyncGenerator[ModelEvent, None]:
        sent = self._written(inputs)
        await self._begin()
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
                    data = await attempt.first()
                    while data:
                        for event in decoder.feed(data):
                            yield event
                        data = await attempt.read()
                    for event in decoder.end():
                        yield event
                    response = attempt.response()
                    break
                except RequestError as failure:
                    error = self._endpoint.clean(failure)
                except RefusedError as refusal:
                    raise self._refused(refusal) from None
                finally:
                    self._lost += decoder.usage
                    await attempt.close()
                if notice := self._adapted(error, number):
                    yield Noticed(notice)
                    continue
                wait = self._wait_after(error, number)
                raised = self._raised(error)
                yield AttemptFailed(number, _failure(error), wait, decoder.usage, raised)
                _log.warning(_RETRYING, self._dialect.model, error, wait)
                await self._retry.sleep(wait)
                number += 1
        finally:
            self._busy = False
        for event in self._complete(sent, response):
            yield event

    def keep(self, text: str, *inputs: UserText | ToolResult) -> Exchange:
        sent = self._written(inputs)
        exchange = Exchange(
            dialect=self._dialect.name,
            sent=tuple(sent),
            received=(self._dialect.respond(text, ()),),
            finish=Finish.ANSWERED,
            usage=self._lost,
        )
        self._keep(exchange)
        self._lost = TokenUsage()
        return exchange

    async def _begin(self) -> None:
        for _ in range(_TICKS):  # a stream that was left without closing it is being closed
            if self._busy:
                await asyncio.sleep(0)
        if self._busy:
            raise SafeExecutionError(
                "this session waits for a response already: read that to its end, or close it"
            )
        self._busy = True
        self._bad_outputs = 0

    def _written(self, inputs: Sequence[UserText | ToolResult]) -> list[str]:
        texts = [part for part in inputs if isinstance(part, UserText)]
        results = {part.tool_use_id: part for part in inputs if isinstance(part, ToolResult)}
        for said in (*(part.text for part in texts), *(r.content for r in results.values())):
            if not isinstance(said, str):
                raise InvalidValueError(f"a model is told text, not {said!r}: write str(...)")
        if any(not part.text.strip() for part in texts):
            raise InvalidValueError("there is nothing to send: the text is empty")
        if len(texts) + len(results) < len(inputs):
            raise InvalidValueError("send UserText and ToolResult only, one result for each call")
        asked = {call.id for call in self._asked}
        if unknown := results.keys() - asked:
            raise UsageError(f"the model asked for no such call: {', '.join(sorted(unknown))}")
        if missing := asked - results.keys():
            raise UsageError(f"these calls have no result yet: {', '.join(sorted(missing))}")
        if self._is_paused and inputs:
            raise UsageError("the model has more to say: send nothing, and it goes on")
        if not inputs and not self._is_paused:
            raise UsageError("there is nothing to send: give a UserText, or the results of calls")
        return self._dialect.write([(call, results[call.id]) for call in self._asked], texts)

    @property
    def _is_paused(self) -> bool:
        return bool(self._exchanges) and self._exchanges[-1].finish is Finish.PAUSED

    # What comes of an attempt

    def _complete(self, sent: Sequence[str], response: Response) -> list[ModelEvent]:
        exchange = Exchange(
            dialect=self._dialect.name,
            sent=tuple(sent),
            received=(response.message,) if response.message is not None else (),
            finish=response.finish,
            usage=self._lost,
        )
        parts = self._keep(exchange)
        self._lost = TokenUsage()
        notices, self._dialect.notices = self._dialect.notices, []
        end = ResponseEnded(exchange, response.reason)
        return [*map(Noticed, notices), *map(PartCompleted, parts), end]

    def _keep(self, exchange: Exchange) -> list[TranscriptPart]:
        """Add *exchange* to the history, all of it or nothing; return what was received."""
        dialect, at = self._dialect, len(self._history)
        messages = [message.encode() for message in exchange.sent]
        messages += [dialect.replayed(message).encode() for message in exchange.received]
        sent: list[TranscriptPart] = []
        for place, message in enumerate(exchange.sent, at):
            sent += dialect.read(message, place, self._asked)
        received: list[TranscriptPart] = []
        for place, message in enumerate(exchange.received, at + len(exchange.sent)):
            received += dialect.read(message, place, ())
        self._history += messages
        self._transcript += sent + received
        self._asked = [part for part in received if isinstance(part, ToolUse)]
        self._exchanges.append(exchange)
        self._ends.append(len(self._transcript))
        self._usage += exchange.usage
        return received

    def _restore(self, exchange: Exchange, *, is_last: bool) -> None:
        number = len(self._exchanges) + 1
        try:
            self._keep(translated(exchange, self._dialect, self._asked, is_last=is_last))
        except (AttributeError, KeyError, TypeError, ValueError, StopIteration) as error:
            raise InvalidValueError(
                f"exchange {number} is not what a {self._dialect.name} session saved: {error!r}"
            ) from None

    def _refused(self, refusal: RefusedError) -> ModelRefusedError:
        return ModelRefusedError(self._dialect.model, refusal.reason, refusal.text)

    def _adapted(self, error: RequestError, number: int) -> str:
        """Ask in another way if the server refuses this one; return a notice, or nothing."""
        dialect = self._dialect
        if error.refuses_tools and dialect.may_lack_functions and dialect.functions:
            try:
                self._dialect = dialect.without_functions()
            except DefinitionError as fault:
                raise self._failed(error, str(fault), number) from None
            by_schema = self._dialect.settings.response_schema is not None
            return self._explained(_NO_TOOLS, error, what="JSON" if by_schema else "text")
        if self._by_call is not None and error.may_refuse_schema:
            # Only once: a server may refuse functions as well.
            self._dialect, self._by_call = self._by_call, None
            return self._explained(_NO_SCHEMA, error)
        return ""

    def _explained(self, notice: str, error: RequestError, **more: str) -> str:
        address = self._endpoint.address
        return notice.format(
            model=self._dialect.model, address=address, message=error.message, **more
        )

    def _wait_after(self, error: RequestError, number: int) -> float:
        """Return how long to wait after attempt *number* failed, or raise if it was the last."""
        again = error.is_transient and (self._retry.if_refused or not error.is_refused_connection)
        wait = self._retry.wait_before(number, error.retry_after) if again else None
        if error.is_bad_output:
            # Waiting does not help, and a model that fails twice will probably fail again.
            self._bad_outputs += 1
            wait = None if wait is None or self._bad_outputs > 1 else 0.0
        if wait is not None:
            return wait
        remedy = advice(
            error,
            key_name=self._endpoint.key_name,
            address=self._endpoint.address,
            longest=self._retry.longest,
        )
        raise self._failed(error, remedy, number) from None

    def _failed(self, error: RequestError, remedy: str, number: int) -> ModelProviderException:
        """Return *error* as it is raised: all of it is in the message and in ``inner``."""
        return provider_exception(
            self._provider,
            self._dialect.model,
            f"{error.message} ({remedy})",
            status=error.status,
            attempts=number,
            inner=self._raised(error),
        )

    def _raised(self, error: RequestError) -> BaseException | None:
        return sdk_exception(self._sdk, error, self._endpoint.address)


def _failure(error: RequestError) -> Failure:
    kind = f"HTTP {error.status}" if error.status is not None else error.kind or "connection"
    return Failure(kind, error.message)
