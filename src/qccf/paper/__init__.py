"""The paper's experiments, studies, claims and verdicts. Paper: Section VI."""
