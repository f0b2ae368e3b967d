"""Forwards and counts the bytes between a node and the SuperLink; may be a slow link."""

import socket
import threading
import time


class CountingProxy:
    """Listens on its own port until the context ends. `sent` counts the bytes to the target, with TLS and HTTP.

    `bytes_per_s` limits the rate to the target, for all connections together.
    """

    def __init__(self, target_port: int, bytes_per_s: float = float("inf")) -> None:
        self._bytes_per_s = bytes_per_s
        self._link = threading.Lock()
        self.sent = 0
        self._target = ("127.0.0.1", target_port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> "CountingProxy":
        return self

    def __exit__(self, *_: object) -> None:
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
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._forward, args=(source, sink, sink is far), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket, to_target: bool) -> None:
        try:
            while data := source.recv(1024):
                if to_target:
                    with self._link:
                        self.sent += len(data)
                        time.sleep(len(data) / self._bytes_per_s)
                sink.sendall(data)
        except OSError:
            pass
        finally:
            for end in (source, sink):
                end.close()
