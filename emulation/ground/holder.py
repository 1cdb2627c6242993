"""The process that holds a run's network namespaces, which end with it; `emulation.ground.namespaces` starts it.

This script imports only the standard library and runs without site packages (`python -I -S holder.py FD`), so it starts
in a few milliseconds. It makes

- a user namespace in which the caller is root, where that is needed;
- a mount namespace with its own `/etc/hosts`, and a PID namespace for every program that is started on a coast;
- the network namespaces, which have no names and are reached through this process's descriptors.

All of these end with the process, for any reason, and it ends with its parent. The first process of the PID namespace
ends with it too, and the kernel then kills every process that still runs there.

It serves requests, one JSON object per packet of a Unix socket: `run` executes a command in a namespace, `sysctl` sets
values there, `bind` mounts a file over another, `socket` returns a socket of a namespace. An answer has either the
result or one sentence under "error".
"""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from typing import Any

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33  # they ignore net.core.{w,r}mem_max, the machine's limits: socket(7)
COMMAND_TIME_LIMIT_S = 30.0
LARGEST_REQUEST = 1 << 20

_libc = ctypes.CDLL(None, use_errno=True)


def _call(what: str, result: int) -> None:
    """Raise OSError, which says `what` could not be done, for a C function that returned -1."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def die_with_parent(parent: int, signal_number: int) -> None:
    """Make the kernel send a signal when the parent's thread ends; end now when it has already ended."""
    _call("prctl", _libc.prctl(PR_SET_PDEATHSIG, signal_number, 0, 0, 0))
    if os.getppid() != parent:
        os._exit(1)


def _enter_user_namespace() -> None:
    """Become root in a new user namespace that has no other user."""
    uid, gid = os.geteuid(), os.getegid()
    _call("user namespaces", _libc.unshare(CLONE_NEWUSER))
    _write("/proc/self/setgroups", "deny")  # user_namespaces(7): else gid_map may not be written without privilege
    _write("/proc/self/uid_map", f"0 {uid} 1")
    _write("/proc/self/gid_map", f"0 {gid} 1")


class Holder:
    """Makes the namespaces and serves requests about them until the other end of `channel` is closed."""

    def __init__(self, channel: socket.socket, names: list[str], rootless: bool) -> None:
        self._channel = channel
        parent = os.getppid()
        if rootless:
            _enter_user_namespace()
        _call("mount namespaces", _libc.unshare(CLONE_NEWNS))
        _call("private mounts", _libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None))
        _call("PID namespaces", _libc.unshare(CLONE_NEWPID))
        self._networks: dict[str, int] = {}
        for name in names:
            _call("network namespaces", _libc.unshare(CLONE_NEWNET))
            self._networks[name] = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        # New credentials have reset both settings: prctl(2), PR_SET_PDEATHSIG and PR_SET_DUMPABLE.
        _call("prctl", _libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0))
        die_with_parent(parent, signal.SIGKILL)
        self._first = self._fork_first_process()

    def _fork_first_process(self) -> int:
        """Start the first process of the PID namespace, which only waits and reaps orphaned processes."""
        alive, gone = os.pipe()  # shows the child that its parent is alive: in its namespace getppid() is 0
        child = os.fork()
        if child:
            os.close(alive)
            self._keep = gone
            return child
        os.close(gone)
        self._channel.close()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        _call("prctl", _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
        while os.read(alive, 1):  # until the holder has ended
            pass
        os._exit(0)

    def serve(self) -> None:
        """Answer requests until the other end of the channel is closed."""
        networks = {name: f"/proc/{os.getpid()}/fd/{fd}" for name, fd in self._networks.items()}
        self._answer({"pid": os.getpid(), "first_pid": self._first, "networks": networks})
        while request := self._channel.recv(LARGEST_REQUEST):
            try:
                self._serve_one(json.loads(request))
            except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
                self._answer({"error": _sentence(error)})

    def _serve_one(self, request: dict[str, Any]) -> None:
        what = request.pop("request")
        if (network := request.pop("network", None)) is not None:
            _call("entering a network namespace", _libc.setns(self._networks[network], CLONE_NEWNET))
        if what == "run":
            self._answer(_run(**request))
        elif what == "sysctl":
            self._answer(_sysctl(**request))
        elif what == "bind":
            source, target = os.fsencode(request["source"]), os.fsencode(request["target"])
            _call(f"mounting {target.decode()}", _libc.mount(source, target, None, MS_BIND, None))
            self._answer({})
        elif what == "socket":
            with socket.socket(*request["arguments"]) as made:
                if request["buffer_bytes"]:
                    _enlarge_buffers(made, request["buffer_bytes"])
                socket.send_fds(self._channel, [b"{}"], [made.fileno()])
        else:
            raise ValueError(f"{what!r} is not a request")

    def _answer(self, answer: dict[str, Any]) -> None:
        self._channel.send(json.dumps(answer).encode())


def _run(argv: list[str], text: str) -> dict[str, Any]:
    done = subprocess.run(
        argv, input=text, capture_output=True, text=True, check=False, timeout=COMMAND_TIME_LIMIT_S, errors="replace"
    )
    return {"status": done.returncode, "stdout": done.stdout, "stderr": done.stderr}


def _sysctl(values: dict[str, str], where_present: list[str]) -> dict[str, Any]:
    """Set values; a name in `where_present` is skipped on a kernel that does not have it."""
    for name, value in values.items():
        path = "/proc/sys/" + name.replace(".", "/")
        if name in where_present and not os.path.exists(path):
            continue
        _write(path, value)
    return {}


def _enlarge_buffers(made: socket.socket, size: int) -> None:
    """Enlarge a socket's buffers: to `size` with root rights on the machine, else to the machine's limit."""
    for forced, option in ((SO_SNDBUFFORCE, socket.SO_SNDBUF), (SO_RCVBUFFORCE, socket.SO_RCVBUF)):
        try:
            made.setsockopt(socket.SOL_SOCKET, forced, size)
        except PermissionError:
            made.setsockopt(socket.SOL_SOCKET, option, size)


def _sentence(error: BaseException) -> str:
    if isinstance(error, OSError):
        where = f" ({error.filename})" if error.filename else ""
        return f"{error.strerror or error}{where}"
    return str(error) or type(error).__name__


def main() -> None:
    """Hold the namespaces named in the first request until the other end of the socket is closed."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(
            number, signal.SIG_IGN
        )  # the terminal also sends them to the parent, which closes the channel when it ends
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.set_inheritable(False)
    try:
        request = json.loads(channel.recv(LARGEST_REQUEST) or "null")
        if request is not None:
            _hold(channel, request)
    except (BrokenPipeError, ConnectionResetError):
        return  # the process that needs the namespaces has ended


def _hold(channel: socket.socket, request: dict[str, Any]) -> None:
    try:
        holder = Holder(channel, request["networks"], request["rootless"])
    except OSError as error:
        channel.send(json.dumps({"error": _sentence(error)}).encode())
        return
    holder.serve()


if __name__ == "__main__":
    main()
