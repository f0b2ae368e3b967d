"""Many runs: jobs, their queue, local processes and Ray."""
