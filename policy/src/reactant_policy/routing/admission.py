"""Who is let in when the gateway is nearly full."""

from __future__ import annotations


def admit(total: int, cap: int, mine: int, connections: int) -> bool:
    """Whether one more request is let in.

    Below 90 % of the cap every request is; the last tenth is for connections that have less than their
    equal share of the cap in flight, so that one greedy client cannot keep the others out.

    Args:
        total: requests in flight, without this one.
        cap: most that may be.
        mine: those of this request's connection.
        connections: connections with something in flight, this one included.
    """
    if total >= cap:
        return False
    # A lone connection leaves the last tenth to one that is yet to come.
    return total * 10 < cap * 9 or mine * max(connections, 2) < cap
