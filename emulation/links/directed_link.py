"""One direction of one link: its random streams, its text, its model and its record, for every world alike.

The simulator, the relay and netem all take a direction of a link from here. So the streams' names stand in one place,
and the same seed gives the same losses in the simulator and in the relay.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from bicoastal.emulation.records import LinkRecord, QueueSample
from bicoastal.emulation.streams import stream
from bicoastal.wan.link import Link
from bicoastal.wan.loss import LossSpec
from bicoastal.wan.schedule import Outage
from bicoastal.wan.topology import LinkSpec, Topology

LinkKey = tuple[str, bool]  # the link's name, and whether the direction is the one from `b` to `a`


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectedLink:
    """One direction of the link `spec`: from `spec.a` to `spec.b`, or from `b` to `a` where `back` is true."""

    spec: LinkSpec
    back: bool

    @classmethod
    def all_of(cls, links: Iterable[LinkSpec]) -> "tuple[DirectedLink, ...]":
        """Return both directions of every link, link by link, forth before back."""
        return tuple(cls(spec=spec, back=back) for spec in links for back in (False, True))

    @classmethod
    def along(cls, topology: Topology, path: str, *, from_site: str) -> "tuple[DirectedLink, ...]":
        """Return what a packet crosses on `path` from one of its two ends to the other, in order of travel.

        Raises ValueError when `from_site` is not an end of the path.
        """
        its = topology.paths[path]
        links, sites = its.links, its.sites
        if from_site == sites[-1]:
            links, sites = links[::-1], sites[::-1]
        if from_site != sites[0]:
            raise ValueError(f"path {path!r} has no end at {from_site!r}")
        specs = [topology.links[name] for name in links]
        return tuple(cls(spec=spec, back=spec.a != site) for spec, site in zip(specs, sites[:-1], strict=True))

    @property
    def key(self) -> LinkKey:
        """The link's name and `back`, which together identify this direction in a topology."""
        return self.spec.name, self.back

    @property
    def text(self) -> str:
        """The direction as records name it: "a>b"."""
        return f"{self.spec.b}>{self.spec.a}" if self.back else f"{self.spec.a}>{self.spec.b}"

    @property
    def loss(self) -> LossSpec:
        """The loss process of this direction."""
        return self.spec.loss_of(back=self.back)

    @property
    def has_outages(self) -> bool:
        """Whether an outage may take packets that are on their way (`wan.link.Link.survives`)."""
        return any(isinstance(event, Outage) for event in self.spec.events)

    def without_events(self) -> "DirectedLink":
        """Return the same direction of a link on which no capacity step and no outage happens."""
        return replace(self, spec=replace(self.spec, events=()))

    def random_stream(self, seed: int, process: str) -> Random:
        """Return the stream from which one process of the model draws ("loss", "jitter" and so on, see `Link`)."""
        return stream(seed, f"link/{self._name}/{process}")

    def netem_seed(self, seed: int) -> int:
        """Return what netem's own generator is seeded with, 63 bits. netem does not draw what the model draws."""
        return stream(seed, f"netem/{self._name}").getrandbits(63)

    @property
    def _name(self) -> str:
        return f"{self.spec.name}/{'back' if self.back else 'forth'}"

    def model(self, seed: int) -> Link:
        """Return a fresh model of this direction, which draws from its streams of the run with `seed`."""
        return Link(self.spec, back=self.back, stream=partial(self.random_stream, seed))

    def record(self, model: Link) -> LinkRecord:
        """Return the row of what this direction's model has counted."""
        return LinkRecord(
            link=self.spec.name,
            direction=self.text,
            packets=model.packets,
            bytes=model.bytes,
            delivered=model.delivered,
            lost=model.lost,
            dropped_queue=model.dropped_queue,
            dropped_outage=model.dropped_outage,
            duplicated=model.duplicated,
            corrupted=model.corrupted,
            reordered=model.reordered,
        )

    def queue_sample(self, model: Link, at_s: float, now: float) -> QueueSample:
        """Return the row of what waits before this direction at `now`, to be recorded for `at_s`."""
        return QueueSample(link=self.spec.name, direction=self.text, at_s=at_s, backlog_bytes=model.backlog_bytes(now))
