"""One conversation over the wire, whatever the protocol.

Owns the history and the order of things: write, send, read, keep. What the bytes mean is the
dialect's business, how they travel the endpoint's.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from typing import Final

from ramify.core.errors import (
    InvalidValueError,
    ModelProviderException,
    ModelRefusedError,
    OtherProtocolError,
    SafeExecutionError,
    UsageError,
)
from ramify.core.events import Failure
from ramify.core.exchange import PLAIN, Exchange, Finish
from ramify.core.model import Session
from ramify.core.model_events import (
    AttemptFailed,
    ModelEvent,
    Noticed,
    PartCompleted,
    ResponseEnded,
)
from ramify.core.transcript import ToolResult, ToolUse, TranscriptPart, UserText
from ramify.core.usage import TokenUsage
from ramify.models.attempt import Attempt, Endpoint
from ramify.models.decoder import RefusedError, Response
from ramify.models.dialect import Dialect
from ramify.models.request_error import RequestError, advice
from ramify.models.retry import Retry, Timers
from ramify.models.translation import translated

_NO_TOOLS: Final = (
    "{model} at {address} cannot call functions, says the server ({message}); it is asked for text"
    " only. Use a model that can, or see how the server has to be started for it"
)

_RETRYING: Final = "%s failed (%s); trying again in %g s"
_TICKS: Final = 10

_log = logging.getLogger("ramify.models")


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
    ) -> None:
        self._provider = provider  # the class of the model
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
                attempt = Attempt(self._endpoint, self._dialect.decoder(), self._timers)
                decoder = attempt.decoder
                try:
                    data = await attempt.begin(self._dialect.body(self._history, sent))
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
                if self._drops_functions(error):
                    yield Noticed(self._explain_drop(error))
                    continue
                wait = self._wait_after(error, number)
                yield AttemptFailed(number, _failure(error), wait, decoder.usage)
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

    def _drops_functions(self, error: RequestError) -> bool:
        may = self._dialect.may_lack_functions and self._dialect.functions
        if not (may and error.refuses_tools):
            return False
        self._dialect = self._dialect.without_functions()
        return True

    def _explain_drop(self, error: RequestError) -> str:
        return _NO_TOOLS.format(
            model=self._dialect.model, address=self._endpoint.address, message=error.message
        )

    def _wait_after(self, error: RequestError, number: int) -> float:
        """Return how long to wait after attempt *number* failed, or raise if it was the last."""
        wait = self._retry.wait_before(number, error.retry_after) if error.is_transient else None
        if wait is not None:
            return wait
        remedy = advice(
            error,
            key_name=self._endpoint.key_name,
            address=self._endpoint.address,
            longest=self._retry.longest,
        )
        raise ModelProviderException(
            self._provider,
            self._dialect.model,
            f"{error.message} ({remedy})",
            status=error.status,
            attempts=number,
            inner=error.inner,
        ) from None  # what happened is in the message, and 'inner' has the rest


def _failure(error: RequestError) -> Failure:
    kind = f"HTTP {error.status}" if error.status is not None else error.kind or "connection"
    return Failure(kind, error.message)
