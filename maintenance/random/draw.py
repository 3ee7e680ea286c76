"""A seed → a random conversation: the path, and what each end of each connection does, as data.

The scripts are lists of steps, which ends.py carries out:

    ["w", bytes, more]   write, with MSG_MORE or without
    ["r", bytes]         read so many bytes
    ["s", µs]            sleep
    ["poll", ms]         wait for data so long, and do not read it
    ["drain", µs]        query the send queue (SIOCOUTQ) repeatedly, until it is empty
    ["nodelay", 0|1], ["cork", 0|1], ["quickack", 1]
    ["up", steps]        the same on the connection to the next server

Nothing here knows how captures are judged.
"""

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

Step = list[Any]
Steps = list[Step]

BUDGET_MS = 3500.0  # approximate duration of all exchanges of a connection
LATE_ACK_MS = 41.0
MOST_EXCHANGES = 60
# From these seeds on every path has a slow link; is unsteady; retransmits losses on the link; or is short and varies.
SLOW_FROM, UNSTEADY_FROM, REPEATS_FROM, SHORT_FROM = 200_000, 300_000, 400_000, 500_000
TWO_FROM = 100_000  # from this seed on servers answer in two ways, as /api and /slow on one port do


@dataclass
class Socket:
    """The socket options that one end of a connection sets, before anything is written."""

    nodelay: int = 0
    quickack: str = "no"  # "once", or "always": after each read
    sndbuf: int = 0
    rcvbuf: int = 0
    maxseg: int = 0
    delack_us: int = 0  # TCP_DELACK_MAX_US
    congestion: str = ""


@dataclass
class Connection:
    """One connection; a script is what one thread does, and each end has one or two scripts."""

    client: Socket
    server: Socket
    asks: list[Steps]
    answers: list[Steps]
    database: list[Steps] = field(default_factory=list)  # what the server behind the server does


@dataclass
class Path:
    """The path between the client and the server, or the middle."""

    kind: str  # "lo", "veth" or "wire"
    delay_us: int = 0  # of each of the four crossings of a round trip
    jitter_us: int = 0
    lost_every: int = 0  # one new data segment towards the client of so many
    mtu: int = 0
    offload: bool = True
    kbit_s: int = 0  # of the link at the client; 0: as fast as can be
    later_us: int = 0  # the delay from the 20th frame on; 0: as before
    queue_us: int = 0  # the most that a queue adds to each crossing
    still_us: int = 0  # nothing moves for so long in each period
    period_us: int = 55_000
    far_us: int = 0  # additional delay of connections with an odd port at each crossing
    again_us: int = 0  # how much longer frames take that the link lost and repeats
    again_share: float = 0.0  # of the frames, at each crossing


@dataclass
class Plan:
    """Everything about one conversation."""

    seed: int
    path: Path
    middle: str  # "": nothing; "relay", which copies; "chain": the server asks a database
    back: str  # where the server behind the middle runs: "lo" (on the same host) or "veth"
    ipv6: bool
    settings: dict[str, list[str]]  # role → sysctls
    quickack_route: str  # the role whose route has quickack 1
    near: Socket  # of the middle towards the client, if it relays
    far: Socket  # of the middle towards the server
    chunk: int  # bytes a relay reads at most
    lanes: list[list[int]]  # for each client thread its connections, one after the other, by number
    connections: list[Connection]
    noise: bool  # whether a program computes half of the time


def plan_of(known: dict[str, Any]) -> Plan:
    """A plan from its asdict() form in JSON."""
    connections = [
        Connection(Socket(**one.pop("client")), Socket(**one.pop("server")), **one)
        for one in known.pop("connections")
    ]
    path, near, far = Path(**known.pop("path")), Socket(**known.pop("near")), Socket(**known.pop("far"))
    return Plan(path=path, near=near, far=far, connections=connections, **known)


def draw(seed: int) -> Plan:
    """The conversation of that seed."""
    r = random.Random(seed)
    middle = r.choices(["", "relay", "chain"], [70, 16, 14])[0]
    path = _path(r)
    if seed >= SHORT_FROM:
        path = _short(path, random.Random(seed))
    elif seed >= REPEATS_FROM:
        path = _repeats(path, random.Random(seed))
    elif seed >= UNSTEADY_FROM:
        path = _unsteady(path, random.Random(seed))
    elif seed >= SLOW_FROM:
        path = replace(path, kind="wire", mtu=min(path.mtu, 1500), kbit_s=r.choice([300, 1000, 3000, 10_000]))
    back = "" if not middle else "lo" if path.kind == "lo" else r.choice(["lo", "veth"])
    count = r.choices([1, 2, 4, 8], [35, 25, 25, 15])[0]
    shared = r.random() < 0.6  # one behaviour for all connections
    rtt_ms = path.delay_us * 4 / 1000
    budget = BUDGET_MS * r.choice([1, 1, 0.3])
    in_turn = r.random() < 0.4
    if in_turn:
        budget /= count
    kinds = r.randrange(1 << 30)
    connections = []
    for number in range(count):
        behaviour = random.Random(kinds if shared else kinds + number)
        connections.append(_connection(behaviour, r, rtt_ms, budget, middle == "chain", two=seed >= TWO_FROM))
    lanes = [list(range(count))] if in_turn else [[number] for number in range(count)]
    ipv6 = r.random() < 0.25 and not path.lost_every and not 0 < path.mtu < 1280
    return Plan(
        seed, path, middle, back, ipv6, _settings(r), r.choices(["", "client", "server"], [92, 5, 3])[0],
        _socket(r), _socket(r), r.choice([1000, 4096, 65536, 65536]), lanes, connections, r.random() < 0.06,
    )  # fmt: skip


def _path(r: random.Random) -> Path:
    kind = r.choices(["lo", "veth", "wire"], [20, 35, 45])[0]
    path = Path(kind)
    if kind == "wire":
        path.delay_us = round(1000 * 0.5 * 80 ** r.random() / 4)  # round trips from 0.5 to 40 ms
        path.jitter_us = r.choice([0, 0, path.delay_us // 10, path.delay_us // 2, path.delay_us])
        path.lost_every = r.choices([0, 20, 60, 200], [82, 6, 6, 6])[0]
    if kind != "lo":
        path.mtu = r.choices([0, 576, 1280, 1400, 4000, 9000], [75, 5, 5, 5, 5, 5])[0]
        path.offload = r.random() < 0.6
    if kind == "wire":
        path.mtu = min(path.mtu, 1500)  # wire.py's devices carry no more
    return path


def _unsteady(path: Path, r: random.Random) -> Path:
    """A path whose delay depends on the time a packet passes, or on its connection."""
    path = replace(path, kind="wire", mtu=min(path.mtu, 1500))
    match r.choice(["radio", "radio", "queue", "longer", "far"]):
        case "radio":
            period = r.choice([10_000, 20_000, 40_000, 60_000, 80_000])
            return replace(path, period_us=period, still_us=round(period * r.uniform(0.3, 0.9)))
        case "queue":
            return replace(path, queue_us=r.choice([1000, 3000, 10_000, 20_000]))
        case "longer":
            return replace(path, later_us=path.delay_us + r.choice([500, 2000, 8000]))
    return replace(path, far_us=r.choice([250, 1000, 5000, 20_000]))


def _short(path: Path, r: random.Random) -> Path:
    """A path of 0.1 to 0.6 ms that varies by as much, as between virtual machines; wire.py alone takes 0.1."""
    delay_us = r.choice([0, 0, 5, 10, 20, 40, 80])
    jitter_us = r.choice([0, 5, 20, 50, 100])
    return replace(path, kind="wire", mtu=min(path.mtu, 1500), delay_us=delay_us, jitter_us=jitter_us)


def _repeats(path: Path, r: random.Random) -> Path:
    """A path on which some frames take longer, all by the same time, and the frames behind them wait."""
    again_us, again_share = r.choice([8000, 12_000, 20_000, 40_000]), r.choice([0.02, 0.05, 0.1, 0.2])
    return replace(path, kind="wire", mtu=min(path.mtu, 1500), again_us=again_us, again_share=again_share)


def _settings(r: random.Random) -> dict[str, list[str]]:
    """The sysctls of each role's namespace; a setting that only one end has is effectively off."""
    settings: dict[str, list[str]] = {}
    for role in ("client", "middle", "server"):
        own = [f"net.ipv4.tcp_congestion_control={r.choice(['reno', 'reno', 'bbr'])}"]
        for name, share in (("timestamps", 0.15), ("sack", 0.07), ("window_scaling", 0.07), ("autocorking", 0.1)):
            if r.random() < share:
                own.append(f"net.ipv4.tcp_{name}=0")
        if r.random() < 0.1:
            own.append("net.ipv4.tcp_pingpong_thresh=3")
        settings[role] = own
    return settings


def _socket(r: random.Random) -> Socket:
    own = Socket(nodelay=int(r.random() < 0.4))
    own.quickack = r.choices(["no", "once", "always"], [86, 6, 8])[0]
    if r.random() < 0.07:
        own.sndbuf = r.choice([4096, 16384, 65536])
    if r.random() < 0.07:
        own.rcvbuf = r.choice([4096, 16384, 65536])
    if r.random() < 0.06:
        own.maxseg = r.choice([536, 1000, 1200])
    if r.random() < 0.08:
        own.delack_us = r.choice([8000, 12000, 25000, 30000])
    if r.random() < 0.1:
        own.congestion = r.choice(["reno", "bbr"])
    return own


def _connection(
    b: random.Random, r: random.Random, rtt_ms: float, budget: float, chain: bool, two: bool
) -> Connection:  # fmt: skip
    """``b`` draws what connections may have in common, ``r`` what each connection has separately."""
    client, server = _socket(b), _socket(b)
    if r.random() < 0.15:  # one of the pool is different
        r.choice([client, server]).nodelay ^= 1
    kind = b.choices(["ask", "stream", "duplex"], [74, 14, 12])[0]
    if chain or kind == "ask":
        asks, answers, database = _asking(b, r, rtt_ms, budget, chain, two)
        scripts: tuple[list[Steps], list[Steps], list[Steps]] = ([asks], [answers], [database] if chain else [])
    else:
        scripts = (*(_stream(b, r, budget) if kind == "stream" else _duplex(b, r, budget)), [])
    for script in (*scripts[0][:1], *scripts[1][:1]):
        _toggle(b, script)
    return Connection(client, server, *scripts)


def _toggle(b: random.Random, script: Steps) -> None:
    """Change TCP_NODELAY while the connection is open."""
    if b.random() < 0.08 and len(script) > 4:
        script.insert(b.randrange(len(script)), ["nodelay", int(b.random() < 0.7)])


# ----------------------------------------------------------------------------------------- messages


@dataclass
class Message:
    """How one end sends a message: in how many writes, how large, and what it does between them."""

    sizes: list[int]
    varies: bool  # whether sizes differ each time
    between: str
    pause_us: int
    packed: str  # "", "cork" or "more"

    def steps(self, r: random.Random) -> tuple[Steps, list[int]]:
        """The writer's steps, and the sizes."""
        sizes = [max(1, round(size * r.uniform(0.3, 1.5))) for size in self.sizes] if self.varies else self.sizes
        steps: Steps = [["cork", 1]] if self.packed == "cork" else []
        for number, size in enumerate(sizes):
            if number:
                steps += self._wait(r)
            steps.append(["w", size, int(self.packed == "more" and number < len(sizes) - 1)])
        return steps + ([["cork", 0]] if self.packed == "cork" else []), sizes

    def _wait(self, r: random.Random) -> Steps:
        match self.between:
            case "fixed":
                return [["s", self.pause_us]]
            case "random":
                return [["s", round(r.expovariate(1) * self.pause_us)]]
            case "sometimes":
                return [["s", self.pause_us]] if r.random() < 0.3 else []
            case "poll":
                return [["poll", 40]]
            case "drain":
                return [["drain", self.pause_us]]
        return []

    @property
    def takes_ms(self) -> float:
        """About how long."""
        each = {"fixed": self.pause_us / 1000, "random": self.pause_us / 1000, "poll": 40, "drain": LATE_ACK_MS}
        return (len(self.sizes) - 1) * each.get(self.between, 0) + LATE_ACK_MS * 0.7


def _message(b: random.Random, pieces: list[int]) -> Message:
    sizes = [_size(b) for _ in range(b.choices([1, 2, 3, 4, 5], pieces)[0])]
    between = b.choices(["", "fixed", "random", "sometimes", "poll", "drain"], [50, 15, 15, 8, 6, 6])[0]
    pause = round(100 * 1000 ** b.random())  # 100 µs to 100 ms
    if between == "drain":
        pause = min(pause, 2000)
    return Message(sizes, b.random() < 0.4, between, pause, b.choices(["", "cork", "more"], [86, 7, 7])[0])


def _size(b: random.Random) -> int:
    most = b.choices([20, 300, 1400, 6000, 20000], [15, 40, 25, 12, 8])[0]
    return b.randint(1, most)


def _think(b: random.Random) -> tuple[float, bool]:
    """A pause in milliseconds, and whether it is random."""
    return b.choice([0, 0, 0.3, 2, 10, 30, 60, 150]), b.random() < 0.5


@dataclass
class Answer:
    """How a server answers."""

    reply: Message
    think_ms: float
    thinks_randomly: bool


def _answers_of(b: random.Random, first: Answer, two: bool) -> Callable[[random.Random], Answer]:
    """Which answer comes next: alternating, at random, or the second one rarely."""
    if not two:
        return lambda _: first
    other = Answer(_message(b, [35, 35, 15, 10, 5]), *_think(b))
    share, by_turns = b.choice([0.1, 0.3, 0.5, 0.5]), b.random() < 0.3
    turn = itertools.cycle([first, other])
    return lambda r: next(turn) if by_turns else other if r.random() < share else first


def _asking(
    b: random.Random, r: random.Random, rtt_ms: float, budget: float, chain: bool, two: bool
) -> tuple[Steps, ...]:  # fmt: skip
    """Requests and replies: the client's script, the server's, the database's."""
    request, reply = _message(b, [65, 25, 6, 2, 2]), _message(b, [35, 35, 15, 10, 5])
    (client_ms, client_random), (server_ms, server_random) = _think(b), _think(b)
    depth = b.choices([1, 2, 5], [82, 10, 8])[0]
    credit = not chain and depth == 1 and b.random() < 0.06
    query, rows = _message(b, [70, 20, 5, 3, 2]), _message(b, [50, 30, 10, 5, 5])
    early = b.random() < 0.4  # a first piece of the reply goes out before the database is asked
    next_answer = _answers_of(b, Answer(reply, server_ms, server_random), two)
    takes = client_ms + server_ms / 2 + request.takes_ms + reply.takes_ms + 2 * rtt_ms
    takes += query.takes_ms + rows.takes_ms if chain else 0
    rounds = max(3, min(MOST_EXCHANGES // depth, round(budget / takes)))
    asks: Steps = []
    answers: Steps = []
    database: Steps = []
    for _ in range(rounds):
        expected = 0
        for _ in range(depth):
            said, sizes = request.steps(r)
            asks += said
            answer = next_answer(r)
            answers += [["r", sum(sizes)], *_sleep(r, answer.think_ms, answer.thinks_randomly)]
            said, replied = answer.reply.steps(r)
            if chain:
                up, behind = _question(r, query, rows)
                database += behind
                at = next((n + 1 for n, step in enumerate(said) if step[0] == "w"), 0) if early else 0
                said = [*said[:at], ["up", up], *said[at:]]
            if credit and len(replied) > 1:
                said.insert(said.index(["w", replied[0], 0]) + 1 if ["w", replied[0], 0] in said else 1, ["r", 1])
                asks += [["r", replied[0]], ["w", 1, 0]]
                expected -= replied[0]
            answers += said
            expected += sum(replied)
        asks += [["r", expected], *_sleep(r, client_ms, client_random)]
    return asks, answers, database


def _question(r: random.Random, query: Message, rows: Message) -> tuple[Steps, Steps]:
    """What the server does on its connection to the database, and what the database does."""
    asked, sizes = query.steps(r)
    answered, replied = rows.steps(r)
    return [*asked, ["r", sum(replied)]], [["r", sum(sizes)], *answered]


def _sleep(r: random.Random, ms: float, random_: bool) -> Steps:
    if not ms:
        return []
    return [["s", round(1000 * (r.uniform(0.2, 1.8) * ms if random_ else ms))]]


def _stream(b: random.Random, r: random.Random, budget: float) -> tuple[list[Steps], list[Steps]]:
    """One end sends messages unasked; the other reads, and sends something now and then."""
    message = _message(b, [70, 20, 5, 3, 2])
    gap, is_random = b.choice([(0.2, 1), (1, 0), (5, 1), (20, 1), (50, 0), (80, 1)])
    every = b.choice([0, 0, 1, 5])
    count = max(5, min(150, round(budget / (gap + (len(message.sizes) - 1) * message.takes_ms))))
    sender: Steps = []
    reader: Steps = []
    due = 0
    for number in range(1, count + 1):
        said, sizes = message.steps(r)
        sender += [*said, *_sleep(r, gap, bool(is_random))]
        reader.append(["r", sum(sizes)])
        if every and number % every == 0:
            reader.append(["w", 8, 0])
            due += 8
    sending = [sender, [["r", due]]] if due else [sender]
    return (sending, [reader]) if b.random() < 0.4 else ([reader], sending)


def _duplex(b: random.Random, r: random.Random, budget: float) -> tuple[list[Steps], list[Steps]]:
    """Both ends send messages unasked."""
    scripts: list[Steps] = []
    totals: list[int] = []
    for _ in range(2):
        message = _message(b, [80, 15, 5, 0, 0])
        gap, is_random = b.choice([(3, 1), (15, 1), (30, 0), (47, 0), (70, 1)])
        count = max(5, min(100, round(budget / (gap + (len(message.sizes) - 1) * message.takes_ms))))
        script: Steps = []
        total = 0
        for _ in range(count):
            said, sizes = message.steps(r)
            script += [*said, *_sleep(r, gap, bool(is_random))]
            total += sum(sizes)
        scripts.append(script)
        totals.append(total)
    return [scripts[0], [["r", totals[1]]]], [scripts[1], [["r", totals[0]]]]
