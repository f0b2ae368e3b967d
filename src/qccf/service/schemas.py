"""The OpenAPI description: bodies of requests and answers. Bodies are checked by the workers, with one sentence."""

from typing import Any

from pydantic import TypeAdapter

from qccf.settings.problem import DefaultProblemFile, PapersProblemFile

ERROR = {
    "type": "object",
    "properties": {"detail": {"type": "string", "description": "one sentence: the value, the limit and the remedy"}},
    "required": ["detail"],
}
REFUSALS = {
    401: "the token is missing or wrong",
    403: "a page of another origin asked",
    404: "there is no such session, plan or run",
    408: "the body came too slowly",
    409: "it is not this session's turn for this request",
    413: "the body or the problem is too large",
    415: "the body is not application/json",
    421: "another host name than the service's own",
    422: "a mistake in the request, in one sentence",
    429: "too many sessions",
    499: "the client cancelled the request",
    501: "a package that this needs is not installed on the server",
    503: "too many requests at a time",
    504: "the request took too long",
}


def body(model: Any) -> dict[str, Any]:
    """The part of an operation that describes its body."""
    schema = model if isinstance(model, dict) else _inlined(model.model_json_schema())
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def responses(status: int, words: str, media_type: str = "application/json", *others: str) -> dict[int | str, Any]:
    """The answers of an operation: the good one in some media types, or without content, and all refusals."""
    schema = {"application/json": {"schema": {"type": ["object", "array"]}}}
    good: dict[str, Any] = {"description": words}
    if media_type:
        good["content"] = {one: schema.get(one, {}) for one in (media_type, *others)}
    refusals: dict[int | str, Any] = {
        code: {"description": text, "content": {"application/json": {"schema": ERROR}}}
        for code, text in REFUSALS.items()
    }
    return {status: good} | refusals


def problem_schema() -> dict[str, Any]:
    """The problem of `qccf decide`, in either form."""
    return _inlined(TypeAdapter(DefaultProblemFile | PapersProblemFile).json_schema())


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema with its definitions put in place of the references to them."""
    definitions = schema.pop("$defs", {})

    def resolved(node: Any) -> Any:
        if isinstance(node, dict):
            if "$ref" in node:
                return resolved(definitions[node["$ref"].rpartition("/")[2]])
            return {key: resolved(value) for key, value in node.items()}
        return [resolved(value) for value in node] if isinstance(node, list) else node

    result: dict[str, Any] = resolved(schema)
    return result
