"""What a task answers, and how a request is refused."""

from dataclasses import dataclass
from typing import Any

from qccf.core.errors import QccfError
from qccf.core.plain_json import to_json

JSON = "application/json"
PARQUET = "application/vnd.apache.parquet"


@dataclass(frozen=True)
class Answer:
    """Status, content and its type. `kept` is what the service stores of it."""

    status: int
    content: bytes
    media_type: str = JSON
    kept: Any = None


class RefusedError(QccfError):
    """A request that is refused with a status of its own; other errors of the user get 422."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status

    def __reduce__(self) -> Any:
        return RefusedError, (self.status, str(self))


def json_answer(value: Any, status: int = 200, kept: Any = None) -> Answer:
    """Plain values as an answer, in ASCII: a request may hold characters that UTF-8 cannot encode."""
    return Answer(status, to_json(value, ascii_only=True).encode("ascii"), JSON, kept)


def refusal(status: int, sentence: str) -> Answer:
    return json_answer({"detail": sentence}, status)
