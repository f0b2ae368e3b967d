"""The HTTP service and its pages: decisions, sessions, plans and runs. `docs/serve.md` describes it."""
