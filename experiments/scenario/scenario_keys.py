"""The keys of a scenario's tables."""

from bicoastal.experiments.scenario.keys import (
    Section,
    choice_key,
    name_key,
    names_key,
    number_key,
    other_key,
    probability_key,
    rate_key,
    size_key,
    tables_key,
    text_key,
    time_key,
    truth_key,
    whole_key,
)
from bicoastal.transports.b4.generation import MOST_ROUNDS
from bicoastal.wan.topology import MIN_MTU_BYTES

MAX_LINKS = 1024
MAX_ITERATIONS = 1_000_000
MAX_SEED = 2**62
MOST_PACKETS = 2**31
_MAX_MTU_BYTES = 65_535  # the largest IPv4 packet
_MAX_RANKS = 4096
_MAX_TUNNELS = 64
LOSS_MODELS = ("none", "bernoulli", "periodic", "gilbert-elliott", "tail-of-burst", "listed", "trace", "combined")
DEFAULT_TRANSPORTS = ("reno", "cubic", "adaptive")
DEFAULT_SITES = ("west", "east")

_LOSS_KIND = "probability, or a table with a loss model"


class ScenarioKeys(Section):
    """[scenario]."""

    title = "[scenario]"
    meaning = "The name of the scenario, and what holds for the whole run."

    name = name_key("name", "The name of the scenario, in tables and files.")
    description = text_key("description", "What the scenario is about, for people.", default="")
    sites = names_key(
        "sites",
        "The sites of the topology; the first and the last are the coasts.",
        default=DEFAULT_SITES,
        said='["west", "east"]',
    )
    iterations = whole_key("iterations", "How many all-reduces a job makes.", least=1, most=MAX_ITERATIONS, default=20)
    gap = time_key("gap", "The computation between two iterations.", default=1.0, said='"1 s"')
    seed = whole_key("seed", "The seed of the first run.", least=0, most=MAX_SEED, default=0)
    time_limit = time_key(
        "time_limit",
        "How long one iteration may take before the run fails.",
        default=300.0,
        said='"300 s"',
        positive=True,
    )
    sample_interval = time_key(
        "sample_interval", "The spacing of the time series.", said="no time series", positive=True
    )


class LinkKeys(Section):
    """[[links]]."""

    title = "[[links]]"
    meaning = (
        "A link between two sites. Each direction has the same properties, unless a key says otherwise. A capacity "
        "trace has one of two formats. In mahimahi's, each line is a millisecond at which 1504 bytes may leave, and "
        "the trace begins again at its end. In the other, each line is a time and a rate, such as `250 ms, 2 Gbit/s`."
    )

    name = name_key("name", "The name of the link.", default="link", said='"link"')
    count = whole_key(
        "count",
        "How many links of this kind there are; with it, a number from 0 is added to the name.",
        least=1,
        most=MAX_LINKS,
        said="one link, no number",
    )
    between = names_key("between", "The two sites that the link joins.", said="the coasts")
    rate = rate_key(
        "rate",
        "The rate of each direction. With a capacity trace, it is the one that BDP and b4 count with.",
        said="required, unless capacity_trace is there: its mean",
    )
    delay = time_key("delay", "The propagation delay of one direction.", said="required, unless rtt is there")
    rtt = time_key("rtt", "The propagation delay of both directions together.", said="required, unless delay is there")
    mtu = whole_key("mtu", "Bytes of the largest IP packet.", least=MIN_MTU_BYTES, most=_MAX_MTU_BYTES, default=1500)
    queue = other_key(
        "queue",
        'size, or a multiple such as "0.5 BDP"',
        "What may wait before the link; BDP is the rate times the round-trip time of the link.",
        said='"1 BDP"',
        expected='a size such as "2 MB" or "0.05 BDP"',
    )
    framing = whole_key(
        "framing",
        "Bytes on the wire besides those of the IP packet; 38 are Ethernet's.",
        least=0,
        most=_MAX_MTU_BYTES,
        default=38,
    )
    loss = other_key("loss", _LOSS_KIND, "The loss of packets, in each direction on its own.", said="0")
    loss_back = other_key(
        "loss_back", _LOSS_KIND, "The loss from the second site to the first, where it is another.", said="as loss"
    )
    jitter = time_key("jitter", "The largest random delay besides propagation.", default=0.0, said='"0 s"')
    reorder = probability_key("reorder", "The share of packets that are held back.", default=0.0)
    reorder_delay = time_key(
        "reorder_delay", "For how long they are held back; needed with reorder.", default=0.0, said='"0 s"'
    )
    duplicate = probability_key("duplicate", "The share of packets that arrive twice.", default=0.0)
    corrupt = probability_key("corrupt", "The share of packets that arrive damaged.", default=0.0)
    events = tables_key("events", "What changes while a run goes on.")
    capacity_trace = text_key(
        "capacity_trace",
        "A file beside the scenario with the rate of both directions over time.",
        said="a constant rate",
    )


class EventKeys(Section):
    """[[links.events]]."""

    title = "[[links.events]]"
    meaning = "A change of a link: an outage, or a new rate from then on. Exactly one of the two."

    at = time_key("at", "When it begins, counted from the beginning of the run or of the iteration.")
    iteration = whole_key(
        "iteration",
        "The iteration of the first job from whose beginning `at` counts, from 0.",
        least=0,
        most=MOST_PACKETS,
        said="from the beginning of the run",
    )
    outage = time_key(
        "outage", "For how long nothing passes; what waits or is on the way is lost.", said="none", positive=True
    )
    rate = rate_key("rate", "The rate from then on.", said="none")


class PathKeys(Section):
    """[[paths]]."""

    title = "[[paths]]"
    meaning = "A way over links that a transport can use. Without any, each link is a path of its own name."

    name = name_key("name", "The name of the path.")
    links = names_key("links", "The names of its links, one after another.")
    overhead = whole_key("overhead", "Bytes of encapsulation of each packet.", least=0, most=_MAX_MTU_BYTES, default=0)


class TunnelKeys(Section):
    """[tunnels]."""

    title = "[tunnels]"
    meaning = "A search for paths. It finds some for each job, and each background flow, that lists no paths itself."

    count = whole_key("count", "The largest number of paths between two sites.", least=1, most=_MAX_TUNNELS, default=4)
    search = choice_key(
        "search",
        "Whether the paths of least delay are taken, or those that B4 finds around links that are full.",
        ("cheapest", "bottlenecks"),
        default="cheapest",
    )
    rounds = whole_key(
        "rounds",
        "bottlenecks: how many searches there are; the most max-min fair of them counts.",
        least=1,
        most=MOST_ROUNDS,
        default=1,
    )


class JobKeys(Section):
    """[[jobs]] or [allreduce]."""

    title = "[[jobs]], or one [allreduce]"
    meaning = "A training job: the same all-reduce again and again. A single job can be written as [allreduce]."

    name = name_key("name", "The name of the job.", default="job", said='"job", with a number in [[jobs]]')
    shard = size_key(
        "shard", "What one GPU pair exchanges in each direction.", said="required, unless deployment is there"
    )
    deployment = text_key(
        "deployment",
        "The deployment whose shard it is: a bundled one, or a file beside the scenario.",
        said="required, unless shard is there",
    )
    pattern = choice_key(
        "pattern",
        "Whether the shards cross at once, or as a reduce-scatter and an all-gather in two trips.",
        ("exchange", "reduce-scatter"),
        default="exchange",
    )
    ranks_per_site = whole_key("ranks_per_site", "Ranks at each coast.", least=1, most=_MAX_RANKS, default=2)
    dtype = choice_key("dtype", "The type of the gradients.", ("int8", "int16", "int32", "int64"), default="int32")
    array = size_key(
        "array",
        "The real array in memory; a smaller one is repeated up to the shard's size.",
        said="as large as the shard",
    )
    fabric = rate_key(
        "fabric",
        "The rate of a GPU inside its coast; a deployment has stages of its own instead.",
        said='"100 GB/s"',
    )
    sites = names_key("sites", "The two sites of the job.", said="the coasts")
    paths = names_key("paths", "The paths that it may use.", said="all that join its sites")
    iterations = whole_key(
        "iterations", "How many all-reduces it makes.", least=1, most=MAX_ITERATIONS, said="the scenario's"
    )
    gap = time_key("gap", "The computation between two iterations.", said="the scenario's")
    start = time_key("start", "When its first iteration may begin.", default=0.0, said='"0 s"')
    transport = text_key("transport", "The transport that carries it.", said="the one under comparison")
    parameters = other_key("parameters", "table", "Parameters of that transport.", said="the transport's defaults")


class BackgroundKeys(Section):
    """[[background]]."""

    title = "[[background]]"
    meaning = "Other traffic: messages in one direction, one after another."

    name = name_key("name", "The name of the flow.", default="background", said='"background" with a number')
    transport = text_key("transport", "The transport that carries it.")
    parameters = other_key("parameters", "table", "Parameters of that transport.", said="the transport's defaults")
    message = size_key("message", "The size of a message.")
    source = text_key("from", "The site that sends.", said="the first site")
    destination = text_key("to", "The site that receives.", said="the last site")
    paths = names_key("paths", "The paths that it may use.", said="all that join its sites")
    gap = time_key("gap", "The time between two messages.", default=0.0, said='"0 s"')
    start = time_key("start", "When the first message is sent.", default=0.0, said='"0 s"')
    messages = whole_key(
        "messages", "How many messages there are.", least=1, most=MAX_ITERATIONS, said="until the jobs are done"
    )


class TransportsKeys(Section):
    """[transports]."""

    title = "[transports]"
    meaning = "The transports under comparison; a table [transports.NAME] has the parameters of one."

    compared = names_key(
        "default",
        "The transports that are compared where the command names none.",
        default=DEFAULT_TRANSPORTS,
        said='["reno", "cubic", "adaptive"]',
    )


class LossKeys(Section):
    """A loss model."""

    title = "Loss models"
    meaning = 'A table such as `{ model = "periodic", every = 1000 }`. Which keys it has depends on its model.'

    model = choice_key("model", "The kind of loss.", LOSS_MODELS)
    probability = probability_key("probability", "bernoulli: the probability of each packet.")
    every = whole_key("every", "periodic: one packet of so many is lost.", least=1, most=MOST_PACKETS)
    first = whole_key(
        "first", "periodic: the first one that is lost, counted from 0.", least=0, most=MOST_PACKETS, said="every - 1"
    )
    mean_loss = probability_key("mean_loss", "gilbert-elliott: the mean share of packets that are lost.")
    mean_burst = number_key(
        "mean_burst",
        "gilbert-elliott: the mean length of a burst, in packets.",
        least=1,
        expected="a number of packets of at least 1",
    )
    good_to_bad = probability_key(
        "good_to_bad", "gilbert-elliott: the probability to go bad at a packet.", said="by the two means"
    )
    bad_to_good = probability_key(
        "bad_to_good", "gilbert-elliott: the probability to go good.", said="by the two means"
    )
    loss_good = probability_key("loss_good", "gilbert-elliott: the loss in the good state.", default=0.0)
    loss_bad = probability_key("loss_bad", "gilbert-elliott: the loss in the bad state.", default=1.0)
    tail_packets = whole_key(
        "packets", "tail-of-burst: so many packets at the end of each burst.", least=1, most=MOST_PACKETS, default=1
    )
    listed_packets = other_key(
        "packets",
        "list of whole numbers",
        "listed: the packets that are lost, counted from 0.",
        expected="a list of packet numbers",
    )
    outcomes = text_key("outcomes", 'trace: a 1 for each packet that is lost, such as "0001000".', said="by file")
    file = text_key("file", "trace: a file beside the scenario that holds the outcomes.", said="by outcomes")
    repeat = truth_key("repeat", "trace: whether it begins again at its end.", default=True)
    min_wire_bytes = whole_key(
        "min_wire_bytes",
        "periodic, listed, trace: smaller IP packets are neither counted nor lost.",
        least=0,
        most=_MAX_MTU_BYTES,
        default=0,
    )
    parts = tables_key("parts", "combined: loss models that all apply to each packet.", required=True)


SECTIONS: tuple[type[Section], ...] = (
    ScenarioKeys,
    LinkKeys,
    EventKeys,
    PathKeys,
    TunnelKeys,
    JobKeys,
    BackgroundKeys,
    TransportsKeys,
    LossKeys,
)
