"""Where the jobs of a batch run: in processes of this machine, or on a Ray cluster."""
