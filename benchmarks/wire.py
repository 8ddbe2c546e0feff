"""The bytes that went over this host's network card; imports only the standard library."""

from pathlib import Path


def num_bytes(interface: str = "eth0") -> int:
    """The bytes sent and received so far, with headers; 0 if there is no such card."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == interface:
            received, sent = (int(counts.split()[column]) for column in (0, 8))
            return received + sent
    return 0
