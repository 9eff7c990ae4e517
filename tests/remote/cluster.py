# SPDX-License-Identifier: Apache-2.0
"""A cluster of Valkey servers, made by commands, because there is no valkey-cli here."""

from __future__ import annotations

import time
from pathlib import Path

from tests.remote.servers import Valkey

SLOTS = 16384


class Cluster:
    """A number of servers with slots, and as many replicas."""

    def __init__(self, folder: Path, masters: int = 3, replicas: int = 0) -> None:
        self.nodes = [self._node(folder / str(number)) for number in range(masters + replicas)]
        clients = [node.client for node in self.nodes]
        step = SLOTS // masters + 1
        for number, client in enumerate(clients):
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            if number < masters:
                last = min((number + 1) * step, SLOTS) - 1
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", number * step, last)
            if number:
                client.execute_command("CLUSTER", "MEET", "127.0.0.1", self.nodes[0].port)
        self._await(lambda: all(b"cluster_known_nodes:%d" % len(clients) in _info(node) for node in self.nodes))
        for number in range(masters, masters + replicas):
            master = clients[number - masters].execute_command("CLUSTER", "MYID")
            clients[number].execute_command("CLUSTER", "REPLICATE", master)
        self._await(lambda: all(b"cluster_state:ok" in _info(node) for node in self.nodes))
        for client in clients[masters:]:
            # A replica can take over only after it has copied its server.
            self._await(lambda client=client: client.info("replication")["master_link_status"] == "up")
        self.url = self.nodes[0].url

    @staticmethod
    def _node(folder: Path) -> Valkey:
        folder.mkdir(parents=True)
        return Valkey(folder, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
                      "--cluster-node-timeout", "1000", "--repl-diskless-sync-delay", "0")  # fmt: skip

    @staticmethod
    def _await(holds: object) -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            if holds():  # type: ignore[operator]
                return
            time.sleep(0.05)  # there is no event for a cluster that has agreed
        raise AssertionError("the cluster does not come to an agreement")

    def await_takeover(self, lost: int) -> None:
        """Wait until the replica of a lost node has taken over, and all other nodes state that."""
        heir = self.nodes[lost + len(self.nodes) // 2]
        self._await(lambda: heir.client.info("replication")["role"] == "master")
        others = [node for number, node in enumerate(self.nodes) if number != lost]
        self._await(lambda: all(b"cluster_state:ok" in _info(node) for node in others))

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()


def _info(node: Valkey) -> bytes:
    info = node.client.execute_command("CLUSTER", "INFO")
    return info if isinstance(info, bytes) else str(info).replace("'", "").replace(": ", ":").encode()
