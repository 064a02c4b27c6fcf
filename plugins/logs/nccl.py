"""Digests an NCCL trace where it lies, with flat memory. Runs alone, on Python 3.6 and later, as `python3 -`.

`plugins.logs.nodes` reads the same lines in the log of any run.

    python3 nccl.py --limit-seconds N FILE

prints one JSON line, less than 1 MB: what `plugins.modes.traces.NcclDigest` reads, or `{"error": ...}`
with exit status 1. A last line without its newline is not read.

What is counted, with the lines of NCCL 2.28.9 that print it (2.19 to 2.30 print these alike; `Assigned NET plugin` is
new in 2.27):

    call       `AllReduce: opCount 0 sendbuff ... [nranks=16] stream ...`: src/enqueue.cc 2645
    channel    `Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA`: src/transport/net.cc 313, 317, 359;
               p2p.cc 386-406, shm.cc 128, coll_net.cc 182, 206
    network    `NET/IB : Using [0]mlx5_0:1/RoCE ...`: net_ib.cc 839; `Assigned NET plugin IB to comm`:
               src/plugin/net.cc 244; `Using network IB`: src/init.cc 428
    rank       `comm 0x... rank 0 nranks 16 cudaDev 0 ...`: src/init.cc 1574

With `NCCL_DEBUG_SUBSYS=COLL,P2P,NET`, which the recipes set, NCCL prints neither `Using network` nor the lines
with ranks nor the channels over shared memory. A rank is therefore a host, a process and a GPU.

The bytes of a call are those of the largest buffer that it has on a rank: count times the size of an element;
for AllGather, ReduceScatter, AlltoAll, Gather and Scatter, whose count is that of one rank's part (src/nccl.h.in),
also times the number of ranks. This is the column `size` of nccl-tests (a0b82b2, src/common.cu 544). Each rank
prints its own call, and all are added.

opCount numbers no calls: src/proxy.cc 1005 counts it up when the proxy starts work, so on one node it can stay 0.
Lost lines are found by comparing ranks: the members of a communicator make the same collective calls with the
same counts, so the handles that agree are a multiple of the communicator's size.
"""

import argparse
import json
import os
import re
import stat
import sys
import time
from collections import Counter
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

VERSION = 1

BLOCK = 1 << 20
LONGEST_LINE = 1 << 16  # NCCL prints 1024 characters at most

# Whatever the input, memory and the digest stay within these.
MOST_RANKS = 4096
MOST_HOSTS = 2048
MOST_HANDLES = 1 << 16
MOST_CALLS = 2048
MOST_SETUPS = 128
MOST_NAMES = 8
MOST_DEVICES = 16
MOST_UNEVEN = 16
MOST_FEWER = 64
MOST = (1 << 63) - 1

# Bytes of an element, src/nccl.h.in 300-313. 2.19 to 2.23 end with 9; 10 and 11 are the two kinds of fp8.
_ELEMENT = {0: 1, 1: 1, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 8, 9: 2, 10: 1, 11: 1}

_PARTS = frozenset((b"AllGather", b"ReduceScatter", b"AlltoAll", b"Gather", b"Scatter"))
_PEER = frozenset((b"Send", b"Recv"))

# A launcher may print its label before the line: `0: `, `[7] `, `[1,0]<stdout>:`, a date. If another line of NCCL
# is before it, the line is torn.
_WHO = (
    rb"^(?:(?!NCCL INFO)[^\n]){0,160}?(?<![\w.-])"
    rb"([\w.-]{1,63}:\d{1,10}):\d{1,10} \[(\d{1,4})\] NCCL INFO "
)
_CALL = re.compile(
    _WHO + rb"(\w{1,20}): opCount [0-9a-f]{1,16} sendbuff [^ \n]{1,20} recvbuff [^ \n]{1,20} "
    rb"count (\d{1,20} datatype \d{1,3}) op \d{1,20} root \d{1,10} comm ([^ \n]{1,20}) \[nranks=(\d{1,7})\][^\n]*",
    re.MULTILINE,
)
_CHANNEL = re.compile(
    _WHO + rb"(?:Channel|CollNet) \d{1,4}(?:/\d{1,4})? : [^\n]{1,60}? via ([^\r\n]{1,80})\r?$", re.MULTILINE
)
_SETUP = re.compile(
    _WHO
    + rb"((?:NET/|Using network |Assigned NET |(?:\[[^\]\n]{1,20}\] )?(?:nccl\w{1,30} )?comm 0x)[^\r\n]{0,2100})\r?$",
    re.MULTILINE,
)

_NET = re.compile(
    r"(NET|COLLNET)/([\w .-]{1,24})/(\d{1,3})(?:\(\d{1,7}\))?(/GDRDMA)?(?:\(PCI\))?(?:/Shared)?$"
)
_LOCAL = re.compile(r"(P2P/(?:direct pointer|[A-Za-z]{1,12})|SHM)(?:/[\w\[\]]{1,20}){0,4}$")
_INTERFACES = re.compile(r"NET/(IB|Socket) : Using((?: \[\d{1,3}\][\w.:/-]{1,40}(?:<\d{1,5}>)?)+)")
_INTERFACE = re.compile(r"\[(\d{1,3})\]([\w.-]{1,20})")
_NETWORK = re.compile(r"(?:Using network|Assigned NET plugin) ([\w .-]{1,24}?)(?: to comm)?$")
_PLUGIN = re.compile(r"NET/Plugin ?: Loaded net plugin ([\w .-]{1,24}) \(v\d{1,3}\)$")
_PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is ([\w;.-]{1,24})")
_MEMBER = re.compile(r"comm 0x[0-9a-f]{1,16} rank (\d{1,7}) n[rR]anks (\d{1,7}) ")


class Digest:
    """The aggregates of the lines fed so far. `counts` has lines, and of those the ones of each kind."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(("lines", "calls", "torn"), 0)
        # How many lines have the begin of a call, and how many its end.
        self.halves = [0, 0]
        # Keys are texts, as JSON has them. By collective, number of ranks and bits of the size: calls, bytes.
        self.calls: Dict[str, List[int]] = {}
        self.other_calls = [0, 0]
        # By host:pid and GPU: calls, networks, plug-ins, transports, devices, interfaces, rank by size.
        self.ranks: Dict[str, Dict[str, Any]] = {}
        self.hosts: Dict[str, int] = {}
        self.other_ranks = 0
        # By the key of a rank, pointer and number of ranks: collectives, their bytes.
        self.handles: Dict[str, List[int]] = {}
        self.other_handles = 0
        # By their text in the trace, so that it is not read again in each line.
        self._messages: Dict[Tuple[bytes, ...], Tuple[List[int], int]] = {}
        self._members: Dict[Tuple[bytes, ...], Tuple[Optional[Dict[str, Any]], Optional[List[int]]]] = {}

    def feed(self, lines: bytes) -> None:
        """Take whole lines, each with its newline."""
        counts = self.counts
        begun = lines.count(b": opCount ")
        rows = _CALL.findall(lines) if begun else []
        nccl = lines.count(b" NCCL INFO ")
        counts["lines"] += lines.count(b"\n")
        counts["calls"] += len(rows)
        self.halves = [self.halves[0] + begun, self.halves[1] + lines.count(b" [nranks=")]
        # Of a torn line its begin or its end may be left, or both.
        counts["torn"] = max(self.halves) - counts["calls"]
        for row, times in Counter(rows).items():
            self._call(row, times)
        if nccl > len(rows):
            channels = _CHANNEL.findall(lines)
            setups = _SETUP.findall(lines)
            for who, gpu, via in dict.fromkeys(channels):
                self._channel(who, gpu, via.decode("ascii", "replace"))
            for who, gpu, text in dict.fromkeys(setups):
                self._setup(who, gpu, text.decode("ascii", "replace"))

    def _call(self, row: Tuple[bytes, ...], times: int) -> None:
        who, gpu, name, size, comm, nranks = row
        known = self._messages.get((name, size, nranks))
        if known is None:
            known = self._message(name, size, nranks)
        sums, message = known
        added = min(MOST, times * message)
        _add(sums, times, added)
        found = self._members.get((who, gpu, comm, nranks))
        if found is None:
            found = self._member(who, gpu, comm, nranks)
        rank, handle = found
        if rank is None:
            self.other_ranks += times
            return
        rank["calls"] += times
        if handle is None:
            self.other_handles += times
        elif name not in _PEER:
            _add(handle, times, added)

    def _message(self, name: bytes, size: bytes, nranks: bytes) -> Tuple[List[int], int]:
        """Where calls like this one are added, and the bytes of one: 0 if its datatype is not known."""
        count, _, datatype = size.split()
        element = _ELEMENT.get(int(datatype), 0)
        message = int(count) * element * (int(nranks) if name in _PARTS else 1)
        key = "{} {} {}".format(name.decode("ascii"), int(nranks), message.bit_length())
        room = key in self.calls or len(self.calls) < MOST_CALLS
        sums = self.calls.setdefault(key, [0, 0]) if room else self.other_calls
        if len(self._messages) >= MOST_CALLS:
            self._messages.clear()
        found = self._messages[(name, size, nranks)] = (sums, message)
        return found

    def _member(
        self, who: bytes, gpu: bytes, comm: bytes, nranks: bytes
    ) -> Tuple[Optional[Dict[str, Any]], Optional[List[int]]]:
        """The records of a rank and of its handle of a communicator; None where there is no room."""
        rank = self._rank(who, gpu)
        handle = "{} {} {}".format(_key(who, gpu), comm.decode("ascii", "replace"), int(nranks))
        room = rank is not None and (handle in self.handles or len(self.handles) < MOST_HANDLES)
        sums = self.handles.setdefault(handle, [0, 0]) if room else None
        if len(self._members) >= MOST_HANDLES:
            self._members.clear()
        found = self._members[(who, gpu, comm, nranks)] = (rank, sums)
        return found

    def _rank(self, who: bytes, gpu: bytes) -> Optional[Dict[str, Any]]:
        """The record of this process and GPU; None if there is no room for it."""
        key = _key(who, gpu)
        found = self.ranks.get(key)
        if found is None:
            host = _host(key)
            if len(self.ranks) >= MOST_RANKS or (host not in self.hosts and len(self.hosts) >= MOST_HOSTS):
                return None
            self.hosts[host] = 1
            found = self.ranks[key] = {
                "calls": 0,
                "networks": [],
                "plugins": [],
                "transports": [],
                "devices": [],
                "interfaces": {},
                "member": {},
            }
        return found

    def _channel(self, who: bytes, gpu: bytes, via: str) -> None:
        net, local = _NET.match(via), _LOCAL.match(via)
        rank = self._rank(who, gpu) if net or local else None
        if rank is None:
            return
        if local:
            _put(rank["transports"], local.group(1), MOST_NAMES)
        elif net:
            kind, name, device, gdr = net.groups()
            _put(rank["transports"], kind + "/" + name.strip() + (gdr or ""), MOST_NAMES)
            _put(rank["devices"], int(device), MOST_DEVICES)

    def _setup(self, who: bytes, gpu: bytes, text: str) -> None:
        rank = self._rank(who, gpu)
        if rank is None:
            return
        member, interfaces = _MEMBER.search(text), _INTERFACES.match(text)
        network, plugin = _NETWORK.match(text), _PLUGIN.match(text) or _PROVIDER.match(text)
        if member:
            # A process is in few communicators of different sizes; its rank in one as large as the job is its own.
            if len(rank["member"]) < 2 * MOST_NAMES:
                rank["member"].setdefault(member.group(2), int(member.group(1)))
        elif interfaces:
            found = _INTERFACE.findall(interfaces.group(2))[:MOST_DEVICES]
            rank["interfaces"][interfaces.group(1)] = dict(found)
        elif network:
            _put(rank["networks"], network.group(1).strip(), MOST_NAMES)
        elif plugin:
            _put(rank["plugins"], plugin.group(1).strip(), MOST_NAMES)

    def report(self) -> Dict[str, Any]:
        """The digest, of bounded size."""
        ranks = self._merged(lambda rank: rank["calls"] > 0)
        hosts = sorted({_host(key) for key, _ in ranks})
        numbers = {host: number for number, host in enumerate(hosts)}
        setups: Dict[str, int] = {}
        rows = []
        world = _world(ranks)
        for key, rank in ranks:
            chosen = _chosen(rank)
            setup = _numbered(setups, chosen, MOST_SETUPS // 2)
            if setup is None:
                setup = _numbered(setups, dict(chosen, devices=[]), MOST_SETUPS)
            pid, gpu = key.partition(":")[2].split()
            member = rank["member"].get(str(world))
            rows.append([numbers[_host(key)], int(pid), int(gpu), member, setup, rank["calls"]])
        order = {key: number for number, (key, _) in enumerate(ranks)}
        calls = sorted(
            (name, int(nranks), int(bits), *sums) for (name, nranks, bits), sums in _split(self.calls)
        )
        return {
            "version": VERSION,
            "counts": self.counts,
            "calls": calls,
            "other_calls": self.other_calls,
            "untracked_calls": self.other_handles,
            "hosts": hosts,
            "setups": [json.loads(setup) for setup, _ in sorted(setups.items(), key=lambda item: item[1])],
            "world": world,
            "ranks": rows,
            "other_ranks": self.other_ranks,
            "uneven": self._uneven(order)[:MOST_UNEVEN],
        }

    def processes(self) -> List[Tuple[str, int, Optional[int], Dict[str, Any]]]:
        """Host, GPU, rank and set-up of each rank, whether or not it made a call. A rank that is not stated is None."""
        stated = any(rank["member"] for rank in self.ranks.values())
        ranks = self._merged(lambda rank: bool(rank["member"]) or not stated)
        world = str(_world(ranks))
        return [(_host(key), _gpu(key), rank["member"].get(world), _chosen(rank)) for key, rank in ranks]

    def _merged(self, acts: Callable[[Dict[str, Any]], bool]) -> List[Tuple[str, Dict[str, Any]]]:
        """The ranks that act, in order.

        A helper thread of NCCL may print its lines with another GPU. If a process has one GPU that acts, all of
        its lines are that GPU's.
        """
        merged = {key: json.loads(json.dumps(rank)) for key, rank in self.ranks.items() if acts(rank)}
        acting = Counter(map(_process, merged))
        only = {_process(key): rank for key, rank in merged.items() if acting[_process(key)] == 1}
        for key, rank in self.ranks.items():
            if key in merged or _process(key) not in only:
                continue
            of_process = only[_process(key)]
            for name in ("networks", "plugins", "transports", "devices"):
                for value in rank[name]:
                    _put(of_process[name], value, MOST_DEVICES if name == "devices" else MOST_NAMES)
            for name in ("interfaces", "member"):
                of_process[name] = dict(rank[name], **of_process[name])
        return sorted(merged.items(), key=lambda item: (_process(item[0]), _gpu(item[0])))

    def _uneven(self, order: Dict[str, int]) -> List[Dict[str, Any]]:
        """The communicators whose members made different collective calls."""
        alike: Dict[Tuple[int, int, int], List[str]] = {}
        for (process, gpu, _, nranks), (calls, bytes_) in _split(self.handles):
            if calls:
                alike.setdefault((int(nranks), calls, bytes_), []).append(process + " " + gpu)
        rest: Dict[int, List[Tuple[int, List[str]]]] = {}
        for (size, calls, _), ranks in alike.items():
            if size > 1 and len(ranks) % size:
                rest.setdefault(size, []).append((calls, ranks))
        uneven = []
        for size, found in sorted(rest.items(), reverse=True):
            most = max(calls for calls, _ in found)
            fewer = sorted(
                [order[rank], calls]
                for calls, ranks in found
                if calls < most
                for rank in ranks
                if rank in order
            )
            if fewer:
                uneven.append({"nranks": size, "calls": most, "fewer": fewer[:MOST_FEWER]})
        return uneven


def _add(sums: List[int], calls: int, size: int) -> None:
    sums[0] += calls
    sums[1] = min(MOST, sums[1] + size)


def _key(who: bytes, gpu: bytes) -> str:
    """That of a rank: `gpu-01:4711 0`."""
    return "{} {}".format(who.decode("ascii"), int(gpu))


def _process(key: str) -> str:
    return key.partition(" ")[0]


def _gpu(key: str) -> int:
    return int(key.partition(" ")[2])


def _split(sums: Dict[str, List[int]]) -> Iterable[Tuple[List[str], List[int]]]:
    return ((key.split(" "), values) for key, values in sums.items())


def _put(values: List[Any], value: Any, most: int) -> None:
    if value not in values and len(values) < most:
        values.append(value)


def _numbered(setups: Dict[str, int], chosen: Dict[str, Any], most: int) -> Optional[int]:
    """The number of this set-up, a new one while there are fewer than `most`."""
    key = json.dumps(chosen, sort_keys=True)
    if len(setups) < most:
        setups.setdefault(key, len(setups))
    return setups.get(key)


def _world(ranks: List[Tuple[str, Dict[str, Any]]]) -> int:
    """The size of the largest communicator; 0 if none is stated."""
    return max([int(size) for _, rank in ranks for size in rank["member"]] or [0])


def _host(key: str) -> str:
    return key.partition(":")[0]


def _chosen(rank: Dict[str, Any]) -> Dict[str, Any]:
    """What a rank chose. A device has its name where NCCL listed them, otherwise its number."""
    names = rank["interfaces"].get("Socket" if "NET/Socket" in rank["transports"] else "IB", {})
    devices = [names.get(str(number), str(number)) for number in sorted(rank["devices"])]
    return {
        "networks": sorted(rank["networks"]),
        "plugins": sorted(rank["plugins"]),
        "transports": sorted(rank["transports"]),
        "devices": devices,
    }


def read(path: str, digest: Digest, deadline: float, block: int = BLOCK) -> Tuple[int, int]:
    """Feed the lines of a file until the time runs out. Returns its size, and how many bytes were read.

    A last line without its newline is not read: it may still be written. Raises OSError.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError("is no regular file")
    offset, inside, rest = 0, False, b""
    with open(path, "rb", 0) as file:
        while time.monotonic() <= deadline:
            piece = file.read(block)
            if not piece:
                break
            data = rest + piece
            start, end = 0, data.rfind(b"\n") + 1
            if inside and end:
                start, inside = data.find(b"\n") + 1, False
            for lines in _without_long(data[start:end], digest.counts):
                digest.feed(lines)
            rest = data[end:]
            if inside or len(rest) > LONGEST_LINE:
                digest.counts["lines"] += not inside
                inside, rest = True, b""
            offset += len(data) - len(rest)
        size = os.fstat(file.fileno()).st_size
    return size, offset


def _without_long(data: bytes, counts: Dict[str, int]) -> Iterable[bytes]:
    """Whole lines in as few pieces as can be, without those that are too long, which are counted."""
    begin = at = 0
    while at < len(data):
        last = data.rfind(b"\n", at, at + LONGEST_LINE + 1) + 1
        if last:
            at = last
            continue
        if begin < at:
            yield data[begin:at]
        counts["lines"] += 1
        begin = at = data.find(b"\n", at) + 1
    if begin < at:
        yield data[begin:at] if begin else data


def run(path: str, seconds: float, block: int = BLOCK) -> Dict[str, Any]:
    """Read for so many seconds at most. Returns the digest. Raises OSError if the file cannot be read."""
    deadline, digest = time.monotonic() + seconds, Digest()
    size, offset = read(path, digest, deadline, block)
    return dict(digest.report(), size=size, read=offset, done=time.monotonic() <= deadline)


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(description="Digests an NCCL trace.")
    parser.add_argument("--limit-seconds", type=float, default=float("inf"), metavar="N")
    parser.add_argument("file", metavar="FILE")
    options = parser.parse_args(arguments)
    try:
        answer = run(options.file, options.limit_seconds)
    except OSError as error:
        answer = {"error": "{}: {}".format(options.file, error.strerror or error)[-300:]}
    print(json.dumps(answer, separators=(",", ":")))
    return 1 if "error" in answer else 0


if __name__ == "__main__":
    sys.exit(main())
