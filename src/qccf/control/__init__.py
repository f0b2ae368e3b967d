"""From the state of a round to a certified decision. Paper: Section V."""
