"""Runs a program inside a holder's namespaces: `python -I -S enter.py HOW HOLDER FIRST NETWORK PROGRAM …`.

This script imports only the standard library. HOLDER and FIRST are the process numbers of `emulation.ground.holder` and
of the first process of its PID namespace. NETWORK is the path of a network namespace.

The program has the caller's standard streams, directory and environment. Its exit status becomes that of this process.
Signals sent to this process are forwarded to it. It receives the terminal's signals to the foreground group (Ctrl-C)
directly.

HOW is "beside", or "before" for a program that alone is the terminal's foreground group. A shell with job control needs
that: the number of its group must exist in its PID namespace. The terminal is given back when the program ends.
"""

import ctypes
import errno
import os
import signal
import sys

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1
SI_USER, SI_QUEUE, SI_TKILL = 0, -1, -6  # sent by a process, not by the kernel: sigaction(2)
NOT_STARTED = 125  # the exit status of env(1), nohup(1) and timeout(1) for their own failures

_libc = ctypes.CDLL(None, use_errno=True)

PASSED_ON = frozenset(
    {
        signal.SIGHUP,
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGTERM,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGWINCH,
        signal.SIGCONT,
        signal.SIGALRM,
    }
)


def _set_namespace(path: str, kind: int) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _libc.setns(descriptor, kind) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        os.close(descriptor)


def enter(holder: str, first: str, network: str) -> None:
    """Enter the namespaces; the PID namespace holds for children only. Raises OSError."""
    directory = os.getcwd()
    user = f"/proc/{holder}/ns/user"
    mounts, pids = (os.open(path, os.O_RDONLY) for path in (f"/proc/{holder}/ns/mnt", f"/proc/{first}/ns/pid"))
    nets = os.open(network, os.O_RDONLY)
    if os.stat(user).st_ino != os.stat("/proc/self/ns/user").st_ino:
        _set_namespace(user, CLONE_NEWUSER)
    for descriptor, kind in ((nets, CLONE_NEWNET), (pids, CLONE_NEWPID), (mounts, CLONE_NEWNS)):
        _set_namespace(f"/proc/self/fd/{descriptor}", kind)
        os.close(descriptor)
    os.chdir(directory)


def _has_terminal() -> bool:
    return os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp()


def _take_terminal() -> None:
    """Make this process a new group, and make that the terminal's foreground group."""
    os.setpgid(0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})  # a background process gets it: tcsetpgrp(3)
    os.tcsetpgrp(0, os.getpgrp())


def _take_terminal_back() -> None:
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        os.tcsetpgrp(0, os.getpgrp())
    except OSError as error:
        if error.errno not in (errno.EIO, errno.ENOTTY):  # these two mean that the terminal has hung up
            raise


def _forward_signals(child: int, before_terminal: bool) -> int:
    """Forward signals until the child ends; return its wait status."""
    while True:
        received = signal.sigwaitinfo(PASSED_ON | {signal.SIGCHLD})
        if received.si_signo == signal.SIGCHLD:
            pid, status = os.waitpid(child, os.WNOHANG | (os.WUNTRACED if before_terminal else 0))
            if pid == child and not os.WIFSTOPPED(status):
                return status
            if pid == child:  # no other process can continue it, since it alone has the terminal
                os.killpg(child, signal.SIGCONT)
        elif received.si_code in (SI_USER, SI_QUEUE, SI_TKILL):
            os.kill(child, received.si_signo)


def main() -> int:
    """Enter the namespaces, run the program, and end with its status."""
    how, holder, first, network, *argv = sys.argv[1:]
    before_terminal = how == "before" and _has_terminal()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON | {signal.SIGCHLD})
    try:
        enter(holder, first, network)
        child = os.fork()
    except OSError as error:
        print(f"{argv[0]}: the network namespaces of this run are gone or closed to us: {error}", file=sys.stderr)
        return NOT_STARTED
    if child == 0:
        try:
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if before_terminal:
                _take_terminal()
            for number in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(
                    number, signal.SIG_DFL
                )  # Python ignores them, and ignored signals stay ignored after exec
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.execvp(argv[0], argv)
        except OSError as error:
            print(f"{argv[0]}: {error.strerror}", file=sys.stderr)
            os._exit(127 if isinstance(error, FileNotFoundError) else 126)  # as a shell does: POSIX, XCU 2.8.2
    status = _forward_signals(child, before_terminal)
    if before_terminal:
        _take_terminal_back()
    if os.WIFSIGNALED(status):
        ending = os.WTERMSIG(status)
        if ending != signal.SIGKILL:
            signal.signal(ending, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {ending})
        os.kill(os.getpid(), ending)
        signal.pause()
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main())
