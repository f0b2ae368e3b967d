"""Passes bytes on between a node and the SuperLink, counts them, and may be a slow link."""

import socket
import threading
import time


class CountingProxy:
    """Listens on a port of its own; `sent` counts what went to the target, TLS and HTTP included.

    With `bytes_per_s` no more than that goes to the target, all connections together."""

    def __init__(self, target_port: int, bytes_per_s: float = float("inf")) -> None:
        self._bytes_per_s = bytes_per_s
        self._link = threading.Lock()
        self.sent = 0
        self.received = 0
        self._target = ("127.0.0.1", target_port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._listen, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _listen(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._target)
            except OSError:
                near.close()
                continue
            for source, sink, name in ((near, far, "sent"), (far, near, "received")):
                threading.Thread(target=self._pass, args=(source, sink, name), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, name: str) -> None:
        try:
            while data := source.recv(1024):
                setattr(self, name, getattr(self, name) + len(data))
                if name == "sent":
                    with self._link:
                        time.sleep(len(data) / self._bytes_per_s)
                sink.sendall(data)
        except OSError:
            pass
        finally:
            for end in (source, sink):
                end.close()
