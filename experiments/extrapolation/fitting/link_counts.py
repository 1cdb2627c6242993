"""What the links counted in a transport's runs: the share of packets lost, its interval, and whether losses came alone.

Where packets are lost independently with one probability, the number of losses is a sufficient statistic of it. No
other record adds to it, and completions can only test the model that uses it. Where losses come in bursts, the same
number of them delays fewer messages, and a model of independent losses cannot take the count.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
import numpy.typing as npt

from bicoastal.emulation.records import FlowRecord, LinkRecord
from bicoastal.wan.loss import Bernoulli, NoLoss
from bicoastal.wan.topology import Topology

NORMAL_95 = 1.96  # of the standard normal distribution, two-sided
DRAWS, MOST_DRAWN = 2000, 4_000_000  # of counts under independence; of numbers, all draws together
RARE = 0.001  # probability of such an uneven spread under independence: below it losses count as bursts
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Packets of a transport's runs and what became of them on the wire, all links and both directions together.

    packets: that entered at the messages' sites. lost: on a link, or corrupted there. dropped: by a full queue or an
    outage. unevenness: the variance of the numbers of losses over that of independent ones, for messages or for the
    runs and directions of a link; 1 where chance explains it. processes: the links' loss models, by the names of their
    classes, in which losses depend on one another.
    """

    packets: int
    lost: int
    dropped: int
    unevenness: float = 1.0
    processes: tuple[str, ...] = ()

    @property
    def loss(self) -> float:
        """The share that the path lost. Full queues are left out, because the transport fills them itself."""
        return self.lost / self.packets

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the loss. The upper end counts packets that queues and outages dropped as lost too.

        Uneven events count as fewer even ones, by the factor of their unevenness (a quasi-Poisson variance).
        """
        factor = self.unevenness / self.packets
        low, _ = poisson_interval(self.lost / self.unevenness)
        _, high = poisson_interval((self.lost + self.dropped) / self.unevenness)
        return factor * low, min(factor * high, 1.0)

    @property
    def in_bursts(self) -> bool:
        """Whether losses are not independent of one another, by what was counted or by what the links do."""
        return self.unevenness > 1 or bool(self.processes)

    @property
    def said(self) -> str:
        """The counts in words."""
        gone = self.lost + self.dropped
        return f"{gone:,} loss{'' if gone == 1 else 'es'} of {self.packets:,} packets"

    @property
    def said_of_bursts(self) -> str:
        """What shows that losses came in bursts, in words; empty where nothing does."""
        signs = []
        if self.processes:
            signs.append(f"by {', '.join(self.processes)}")
        if self.unevenness > 1:
            signs.append(f"spread {self.unevenness:.2g} times as unevenly as independent ones")
        return " and ".join(signs)


def poisson_interval(count: float) -> tuple[float, float]:
    """Return the 95 % interval of the mean of a Poisson variable of which `count` was seen.

    Source: Wilson and Hilferty's cube root, as Breslow and Day give it (Statistical Methods in Cancer Research II, IARC
    1987, §2.3): within 2 % of the exact limits (Garwood 1936), but for the lower one of fewer than four, which is less.
    """
    low = count * max(1 - 1 / (9 * count) - NORMAL_95 / (3 * sqrt(count)), 0.0) ** 3 if count else 0.0
    more = count + 1
    return low, more * (1 - 1 / (9 * more) + NORMAL_95 / (3 * sqrt(more))) ** 3


def count(
    links: Sequence[Sequence[LinkRecord]],
    flows: Sequence[FlowRecord],
    topologies: Sequence[Topology],
    *,
    repairs_per_loss: int,
) -> Counted | None:
    """Return what these runs' links counted; None where nothing did.

    links: run by run. flows: the messages whose repairs are looked at, `repairs_per_loss` for each loss, or 0 where
    they do not tell. topologies: of the runs. A packet that goes over several links counts
    once, where it leaves a message's site.
    """
    rows = [row for run in links for row in run]
    ends = {flow.source for flow in flows} | {flow.destination for flow in flows}
    packets = sum(row.packets for row in rows if row.source in ends)
    if not packets:
        return None
    return Counted(
        packets=packets,
        lost=sum(row.lost + row.corrupted for row in rows),
        dropped=sum(row.dropped_queue + row.dropped_outage for row in rows),
        unevenness=max(
            [1.0, *(_unevenness(events, tries) for events, tries in _spreads(links, flows, repairs_per_loss))]
        ),
        processes=processes_of(topologies),
    )


def processes_of(topologies: Iterable[Topology]) -> tuple[str, ...]:
    """Return the kinds of loss of these links whose losses are not independent, by the names of their classes."""
    found: dict[str, None] = {}
    for topology in topologies:
        links = list(topology.links.values())
        for loss in (*(link.loss for link in links), *(link.loss_back for link in links)):
            if loss is not None and not isinstance(loss, NoLoss | Bernoulli):
                found[type(loss).__name__] = None
    return tuple(found)


def _spreads(
    links: Sequence[Sequence[LinkRecord]], flows: Sequence[FlowRecord], repairs_per_loss: int
) -> Iterator[tuple[Counts, Counts]]:
    """Yield numbers of losses and of packets. Independent losses would be spread over these in proportion."""
    for name in {row.link: None for run in links for row in run}:
        same = [row for run in links for row in run if row.link == name and row.packets]
        yield (
            np.array([row.lost + row.corrupted for row in same], np.int64),
            np.array([row.packets for row in same], np.int64),
        )
    if repairs_per_loss:
        sent = [flow for flow in flows if flow.packets]
        yield (
            np.array([flow.repairs // repairs_per_loss for flow in sent], np.int64),
            np.array([flow.packets for flow in sent], np.int64),
        )


def _unevenness(events: Counts, tries: Counts) -> float:
    """Return Pearson's chi-squared over its degrees of freedom, or 1 where chance explains it.

    Its distribution is simulated for this number of events. The chi-squared limit does not hold for few events in many
    places.
    """
    total, places = int(np.sum(events)), len(events)
    if total < 2 or places < 2:
        return 1.0
    shares = tries / np.sum(tries)

    def squared(drawn: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        return np.asarray(np.sum((drawn - total * shares) ** 2 / (total * shares), axis=-1))

    seen = float(squared(events))
    draws = max(1, min(DRAWS, MOST_DRAWN // places))
    by_chance = squared(np.random.default_rng(0).multinomial(total, shares, size=draws))
    later = (1 + int(np.sum(by_chance >= seen))) / (1 + draws)
    return max(seen / (places - 1), 1.0) if later <= RARE else 1.0
