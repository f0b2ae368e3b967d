"""All forms of traces by name. To add one, write a file and add a line here."""

from collections.abc import Callable
from pathlib import Path

from qccf.core.errors import ConfigError, TraceError
from qccf.core.registry import Registry
from qccf.wireless.traces.trace import Trace, TraceEnd, checked_trace, require_size, trace_digest, trace_files

TraceReader = Callable[..., Trace]

TRACE_FORMS: Registry[TraceReader] = Registry(
    "trace form",
    {
        "table": "qccf.wireless.traces.table:read_table",
        "ucc-5g": "qccf.wireless.traces.ucc_5g:read_ucc_5g",
        "ray-traced": "qccf.wireless.traces.ray_traced:read_ray_traced",
    },
    call="function(path, num_clients=…, num_channels=…)",
)


def load_trace(
    name: str,
    form: str,
    *,
    num_clients: int,
    num_channels: int,
    num_rounds: int,
    end: TraceEnd = "wrap",
    digest: str = "",
) -> Trace:
    """Read and check a trace. `digest` is what its content had when the run began; another one is refused."""
    path = Path(name)
    reader = TRACE_FORMS.find(form)
    try:
        for one in trace_files(path):
            require_size(one)
        if digest and trace_digest(name) not in ("", digest):
            raise TraceError("is not the trace with which this run began (its content has changed): restore it.")
        trace = reader(path, num_clients=num_clients, num_channels=num_channels)
        return checked_trace(trace, num_clients=num_clients, num_channels=num_channels, num_rounds=num_rounds, end=end)
    except TraceError as error:
        raise ConfigError(f"radio.trace = {name!r} {error}") from None
    except OSError as error:
        raise ConfigError(f"radio.trace = {name!r} cannot be read: {error.strerror or 'it is no file'}.") from None
