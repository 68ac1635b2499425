"""How far the predicted end of a dispatch can be trusted."""

from __future__ import annotations

from typing import final

_LARGEST_STEP_SECONDS = 0.01
"""One sample counts as at most this above twice what is known: a hiccup must not empty the queues."""


@final
class Lateness:
    """How much later than expected something comes: its mean, and four times its mean deviation.

    As for a retransmission timer (RFC 6298).
    """

    __slots__ = ("_deviation", "_mean")

    def __init__(self) -> None:
        self._mean: float | None = None
        self._deviation = 0.0

    @property
    def seconds(self) -> float:
        """What hardly anything exceeds; 0 before the first observation."""
        return 0.0 if self._mean is None else max(0.0, self._mean + 4.0 * self._deviation)

    def observe(self, seconds: float) -> None:
        """It came `seconds` later than expected; less than 0 is sooner."""
        if self._mean is None:
            self._mean, self._deviation = seconds, abs(seconds) / 2.0
            return
        seconds = min(seconds, 2.0 * self.seconds + _LARGEST_STEP_SECONDS)
        self._deviation += 0.25 * (abs(seconds - self._mean) - self._deviation)
        self._mean += 0.125 * (seconds - self._mean)


@final
class Margin:
    """What to keep free before a deadline: an answer just after it took device time and helps nobody.

    Attributes:
        execution: of the end of a dispatch, against its prediction.
        delivery: of its answers with those who asked, against its end.
    """

    def __init__(self) -> None:
        self.execution = Lateness()
        self.delivery = Lateness()

    @property
    def seconds(self) -> float:
        """From the predicted end of a dispatch until its answers are surely with those who asked."""
        return self.execution.seconds + self.delivery.seconds
