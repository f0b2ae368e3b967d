"""One round, written once: world, decision, uploads, settlement, ledger, checkpoint, run folder."""
