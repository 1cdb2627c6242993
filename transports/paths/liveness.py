"""Asking a path for an answer while its siblings have theirs, more often than its own probe timer would.

The probe timer doubles with every expiry (RFC 9002 §6.2.1): a connection by itself cannot tell losses from congestion.
Beside parallel paths that answer it can do better. A burst of losses that takes ten packets, met by one packet per
expiry, would keep a path away for minutes; one packet per round trip is through in less than a second. That is no
burden: persistent congestion, the gravest verdict there is, leaves a sender a window of two packets (RFC 9002 §7.2,
§7.6.2), and the guideline for who knows nothing of congestion is one datagram per round trip (RFC 8085 §3.1.3).
"""

from collections.abc import Sequence

from bicoastal.transports.quic.path_connection import UNKNOWN_RTT_S, PathConnection
from bicoastal.wan.units import INFINITY

TRIES = 32  # in a row, then only the probe timer is left; a burst of ten on average outlasts them once in 29 times
LEAST_INTERVAL_S = 0.05  # beside very short paths: others may be longer, and the far end busy
QUIET_RTTS = 1.25  # nothing is asked of a path that was heard so lately
PATIENCE_FOR_PATHS_S = 2.0  # for the others to connect, after the first one has


class LivenessProbes:
    """Of the paths of one endpoint, which are told apart by their place in `links`.

    Once the first handshake is confirmed, all that are not settled are asked for answers, and later one that has fallen
    silent is. at_s: when `ask` is due next (inf: nobody is asked). unsettled: places for which `look` is to be called.
    """

    def __init__(self, links: Sequence[PathConnection]) -> None:
        self.at_s = INFINITY
        self.unsettled = set(range(len(links)))
        self._links = links
        self._begun = len(links) == 1  # it has no siblings
        self._next_s = [INFINITY] * len(links)
        self._interval_s = [UNKNOWN_RTT_S] * len(links)
        self._left = [0] * len(links)

    def look(self, place: int, now: float, *, settled: bool) -> None:
        """See how far a path has come. settled: all that comes before its first message is done."""
        link = self._links[place]
        if settled or link.failure:
            self.unsettled.discard(place)
            self.end(place)
        if link.confirmed and not self._begun:
            self._begun = True
            for other in self.unsettled:
                self.begin(other, now, link.rtt_s)

    def begin(self, place: int, now: float, interval_s: float) -> None:
        """Ask a path every `interval_s`, a round trip of its own or a sibling's, until `end`, `TRIES` times at most."""
        self._interval_s[place] = max(interval_s, LEAST_INTERVAL_S)
        self._left[place] = TRIES
        self._set(place, now + self._interval_s[place])

    def end(self, place: int) -> None:
        """Ask a path no more: it has answered, or its connection has ended."""
        self._set(place, INFINITY)

    def ask(self, now: float) -> list[int]:
        """Ask the paths whose turn it is, unless they have just been heard; return those that were asked."""
        asked = []
        for place, at_s in enumerate(self._next_s):
            if at_s > now:
                continue
            link = self._links[place]
            heard_s = link.last_heard_s if link.confirmed else -INFINITY
            next_s = heard_s + max(self._interval_s[place], QUIET_RTTS * (link.rtt.srtt_s or 0.0))
            if next_s <= now:
                asked.append(place)
                link.probe(now)
                self._left[place] -= 1
                next_s = now + self._interval_s[place]
            self._set(place, next_s if self._left[place] else INFINITY)
        return asked

    def _set(self, place: int, at_s: float) -> None:
        self._next_s[place] = at_s
        self.at_s = min(self._next_s)
