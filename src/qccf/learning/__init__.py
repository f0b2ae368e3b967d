"""What the clients learn and from what: datasets, partition, models, local training, aggregation."""
