"""Python programs that start in a tenth of the time: forks of a process that has JAX imported.

`quick_python()` is an executable in the place of `sys.executable` in commands of tests: `-c`,
`-m` and files, with the caller's streams, environment, folder and status. Each run is a process
of its own. It has imported JAX, Flax, Optax and Orbax, nothing of jgs, and has no backend yet.
Where a fork is too late (options of Python, variables that are read when JAX or the C library
starts), the interpreter is started as usual. Tests of starting use `sys.executable`.

Two processes stand behind it. The *server* forks for each request. The *client* is what a test
starts: this file, without packages. It sends what it was given, passes signals on, and ends as
the fork ends. When it is killed, so is the fork.

What differs from a program of its own, so that tests of it use `sys.executable`: the parent is
the server, not who started the client; a stop signal (SIGSTOP) stops the client alone; the
server's namespaces, limits and processors hold, not those of the client; all forks of a server
hash strings alike, so an order of sets that differs between ranks is not seen.
"""

import contextlib
import json
import os
import signal
import socket
import sys

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)
# Read when a library starts; the fork has started them already.
AT_START = ("PYTHON", "JAX_", "LD_", "GLIBC_", "MALLOC_", "TF_", "OPENBLAS_", "OMP_", "MKL_")
AT_START += ("LANG", "LC_", "TZ")
# JAX's own that a fork can still be given.
LATE = {"JAX_PLATFORMS": str, "JAX_NUM_CPU_DEVICES": int, "JAX_ENABLE_X64": bool}
MOST = 1 << 20  # bytes of a request


def client(server: str, argv: list[str]) -> None:
    """What a test starts. It never returns."""
    pid, early = None, []

    def pass_on(number, frame):
        if pid is None:
            early.append(number)
        else:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(pid, number)

    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(server)
        fds = [int(name) for name in os.listdir("/proc/self/fd")]
        fds = [fd for fd in fds if fd != connection.fileno() and _is_open(fd)]
        ignored = [n for n in PASSED_ON if signal.getsignal(n) == signal.SIG_IGN]
        for number in PASSED_ON:  # the program may come to handle those that are ignored
            signal.signal(number, pass_on)
        request = {"argv": argv, "env": dict(os.environ), "cwd": os.getcwd(), "fds": fds}
        request |= {"ignored": ignored, "python": sys.executable}
        text = json.dumps(request).encode()
        socket.send_fds(connection, [len(text).to_bytes(4, "big")], fds)
        connection.sendall(text)
        for fd in fds:  # the fork alone holds the ends of pipes
            os.close(fd)
        answer = connection.makefile("r")
        pid = int(answer.readline())
        for number in early:
            pass_on(number, None)
        status = int(answer.readline() or -signal.SIGKILL)
    if status < 0:
        if status != -signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


class Fork(Exception):
    """Raised in the fork, so that it leaves the server's loop: holds its request."""


def serve(path: str) -> None:
    """Forks for each request until standard input ends. Raises `Fork` in each fork."""
    import gc
    import selectors

    import flax.nnx  # noqa: F401
    import jax  # noqa: F401
    import optax  # noqa: F401
    import orbax.checkpoint  # noqa: F401
    import rich.console  # noqa: F401
    import scipy.sparse  # noqa: F401

    gc.collect()
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    woken, wake = socket.socketpair()
    wake.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    ready, forks = selectors.DefaultSelector(), {}
    for source in (listener, woken, sys.stdin):
        ready.register(source, selectors.EVENT_READ)
    print("ready", flush=True)
    while True:
        for event, _ in ready.select():
            source = event.fileobj
            if source is sys.stdin:  # whoever started this has ended
                for pid in forks:
                    os.kill(pid, signal.SIGKILL)
                os._exit(0)
            if source is woken:
                woken.recv(4096)
                _reap(forks, ready)
            elif source is listener:
                connection, _ = listener.accept()
                request, fds = _received(connection)
                if request is None:  # the client was killed
                    connection.close()
                elif (pid := os.fork()) == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    # Else the garbage collector closes them later, when their numbers are those
                    # of files of the program.
                    for each in (listener, woken, wake, connection, ready, *forks.values()):
                        each.close()
                    raise Fork(request, fds)
                else:
                    forks[pid] = connection
                    ready.register(connection, selectors.EVENT_READ, pid)
                    _tell(connection, pid)
                for fd in fds:
                    os.close(fd)
            elif event.data in forks:  # the client was killed
                os.kill(event.data, signal.SIGKILL)
                ready.unregister(source)


def _received(connection: socket.socket) -> tuple[dict | None, list[int]]:
    """The request and its files; None where the client was killed before it had sent it."""
    length, fds, *_ = socket.recv_fds(connection, 4, 200)
    size, text = int.from_bytes(length, "big"), b""
    while len(text) < size:
        piece = connection.recv(min(size - len(text), MOST))
        if not piece:
            break
        text += piece
    return json.loads(text) if size and len(text) == size else None, list(fds)


def _tell(connection: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # the client was killed; its end of the line is closed
        connection.sendall(f"{number}\n".encode())


def _reap(forks: dict, ready: object) -> None:
    while forks:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        connection = forks.pop(pid)
        if connection in ready.get_map():
            ready.unregister(connection)
        _tell(connection, os.waitstatus_to_exitcode(status))
        connection.close()


def become(request: dict, fds: list[int]) -> None:
    """Runs the request in this fork, as `python argv...` would."""
    import fcntl

    os.setsid()
    own = {int(name) for name in os.listdir("/proc/self/fd")} - set(fds)
    # Above all numbers that are wanted, so that none overwrites another.
    least = max([*request["fds"], *fds]) + 1
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, least) for fd in fds]
    for fd in own | set(fds):
        with contextlib.suppress(OSError):
            os.close(fd)
    for fd, number in zip(high, request["fds"], strict=True):
        os.dup2(fd, number)
        os.close(fd)
    for number in PASSED_ON:
        default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in request["ignored"] else default)
    os.chdir(request["cwd"])
    before, env = dict(os.environ), request["env"]
    argv = request["argv"]
    changed = {k for k in before.keys() | env.keys() if before.get(k) != env.get(k)}
    late = changed - LATE.keys() - {"PYTHONPATH"}
    started = any(k.startswith(AT_START) for k in late) or changed & LATE.keys() - env.keys()
    if started or not argv or (argv[0][0] == "-" and argv[0] not in ("-c", "-m")):
        os.execve(request["python"], [request["python"], *argv], env)
    of_server = before.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [path for path in sys.path if not path or path not in of_server]
    os.environ.clear()
    os.environ.update(env)
    import jax

    for name in changed & LATE.keys() & env.keys():
        of = LATE[name]
        value = env[name].lower() in ("1", "true") if of is bool else of(env[name])
        jax.config.update(name.lower(), value)
    run(argv)


def run(argv: list[str]) -> None:
    """The program, as `__main__`; this module is no longer among the imported ones."""
    import runpy

    paths = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    known = [p for p in sys.path[1:] if p not in paths]
    sys.path[:] = ["", *paths, *known]
    if any(os.path.isfile(os.path.join(path, "sitecustomize.py")) for path in paths):
        sys.modules.pop("sitecustomize", None)
        __import__("sitecustomize")
    kind, sys.argv = argv[0], argv
    if kind == "-c":
        sys.argv = ["-c", *argv[2:]]
        main = type(sys)("__main__")
        main.__builtins__ = __builtins__
        sys.modules["__main__"] = main
        exec(compile(argv[1], "<string>", "exec"), vars(main))
    elif kind == "-m":
        sys.path[0] = os.getcwd()
        sys.argv = argv[1:]
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(kind))
        runpy.run_path(kind, run_name="__main__")


def quick_python() -> str:
    """The executable, whose server starts with the first call and ends with this process."""
    global _python, _server
    if _python is None:
        folder = Path(tempfile.mkdtemp(prefix="jgs-forks-"))
        command = [sys.executable, __file__, "serve", str(folder / "socket")]
        pipe = subprocess.PIPE
        _server = subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True)
        assert _server.stdout.readline() == b"ready\n"
        path = folder / "python"
        client = shlex.join([sys.executable, "-IS", __file__, str(folder / "socket")])
        path.write_text(f'#!/bin/sh\nexec {client} "$@"\n')
        path.chmod(0o755)
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        _python = str(path)
    return _python


def ended(*command, **options) -> "subprocess.CompletedProcess":
    """A program that has ended: its status, and what it printed."""
    words = list(map(str, command))
    return subprocess.run(words, capture_output=True, text=True, timeout=500, **options)


def ran(*command, **options) -> str:
    """What a program prints, which ends well."""
    done = ended(*command, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


if __name__ == "__main__":
    if sys.argv[1] != "serve":
        client(sys.argv[1], sys.argv[2:])
    try:
        serve(sys.argv[2])
    except Fork as fork:
        requested = fork.args
    become(*requested)
else:
    import atexit
    import shlex
    import shutil
    import subprocess
    import tempfile
    from pathlib import Path

    _python: str | None = None
    _server: subprocess.Popen | None = None  # its standard input stays open as long as this
