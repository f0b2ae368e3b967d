"""A local web server that can misbehave like real ones, and a log of the progress of a download."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server:
    """Serves ``files``. It can ignore ranges, close the connection early, or send a wrong range."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.requests: list[tuple[str, str | None]] = []
        self.ranges = True
        self.break_after: int | None = None
        self.shift = 0
        server = self

        class Handler(BaseHTTPRequestHandler):
            log_message = staticmethod(lambda *_: None)

            def do_GET(self) -> None:
                server.answer(self)

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_address[1]}/"
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        name, wanted = handler.path.lstrip("/"), handler.headers.get("Range")
        self.requests.append((name, wanted))
        if name not in self.files:
            handler.send_error(404)
            return
        content, start = self.files[name], 0
        if wanted is not None and self.ranges:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                handler.send_error(416)
                return
            handler.send_response(206)
            handler.send_header("Content-Range", f"bytes {start + self.shift}-{len(content) - 1}/{len(content)}")
        else:
            handler.send_response(200)
        handler.send_header("Content-Length", str(len(content) - start))
        handler.end_headers()
        handler.wfile.write(content[start : self.break_after])

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


class ProgressLog(list[tuple[str, int, int | None]]):
    def __call__(self, what: str, done: int, total: int | None) -> None:
        self.append((what, done, total))

    def text(self) -> str:
        return "\n".join(what for what, _, _ in self)
