"""A real sshd on each of the hosts of `two_hosts`, with keys made for the test."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from two_hosts import Host, NotPermitted

SSHD = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


@contextmanager
def ssh_servers(hosts: list[Host], folder: Path) -> Iterator[str]:
    """The ssh command by which hosts reach each other by name. Raises `NotPermitted`."""
    missing = [name for name in ("ssh", "ssh-keygen", "rsync") if not shutil.which(name)]
    if missing or not SSHD:
        raise NotPermitted(f"no {', '.join(missing or ['sshd'])} (openssh-server, rsync)")
    key, known = folder / "key", folder / "known_hosts"
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)]
    subprocess.run(command, check=True, capture_output=True)
    public = key.with_suffix(".pub").read_text()
    known.write_text("".join(f"{host.name} {public}" for host in hosts))
    server, client = folder / "sshd_config", folder / "ssh_config"
    server.write_text(
        f"HostKey {key}\nAuthorizedKeysFile {key}.pub\nPidFile none\nUsePAM no\n"
        "StrictModes no\nPermitRootLogin yes\nMaxStartups 100\n"
    )
    client.write_text(f"IdentityFile {key}\nUserKnownHostsFile {known}\nIdentitiesOnly yes\n")
    Path("/run/sshd").mkdir(exist_ok=True)  # where sshd runs its unprivileged part
    with ExitStack() as stack:
        for host in hosts:
            daemon = [SSHD, "-D", "-e", "-f", str(server)]
            process = subprocess.Popen(
                host.on(*daemon), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            if "listening" not in (said := process.stderr.readline()):
                raise NotPermitted(f"sshd: {said.strip()}")
        yield f"ssh -F {client}"
