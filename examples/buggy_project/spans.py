"""Spans of time, each a pair of minutes since midnight: the first of it, and the first after it."""

Span = tuple[int, int]


def merged(spans: list[Span]) -> list[Span]:
    """Return *spans* in order; those that overlap or touch are joined into one."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found


def free(day: Span, busy: list[Span]) -> list[Span]:
    """Return what is left of *day* between the spans in *busy*."""
    left: list[Span] = []
    begin = day[0]
    for start, end in merged(busy):
        if begin < start:
            left.append((begin, start))
        begin = end
    if begin < day[1]:
        left.append((begin, day[1]))
    return left
