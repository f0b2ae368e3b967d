#!/bin/sh
# One round of a federation with curl, decided by the service.
# Run: qccf serve        in one terminal
#      sh examples/service_client.sh [ADDRESS]
set -eu
address=${1:-http://127.0.0.1:8008}
json='content-type: application/json'
here=$(dirname "$0")

# A single decision: the problem of `qccf decide`.
curl --silent --show-error --fail-with-body --header "$json" --data @"$here/round.json" "$address/v1/decide"
echo

# A session keeps the policy's state on the server.
created=$(curl --silent --show-error --fail-with-body --header "$json" "$address/v1/sessions" --data '
  {"preset": "femnist", "settings": {"federation.num_clients": 2, "radio.num_channels": 2, "codec.name": "model"}}')
session=$(printf %s "$created" | sed 's/.*"id": "\([^"]*\)".*/\1/')

curl --silent --show-error --fail-with-body --header "$json" "$address/v1/sessions/$session/rounds" --data '
  {"rates_bps": [[8e7, 6e7], [5e7, 9e7]], "dataset_sizes": [1200, 900], "gradient_norms_sq": [1.0, 1.2],
   "weight_ranges": [0.4, 0.5]}'
echo

curl --silent --show-error --fail-with-body --header "$json" "$address/v1/sessions/$session/outcome" --data '
  {"uploads": [{"client": 0, "gradient_norm_sq": 0.9, "weight_range": 0.4},
               {"client": 1, "gradient_norm_sq": 1.1, "weight_range": 0.5}]}'
echo

curl --silent --show-error --fail-with-body --request DELETE "$address/v1/sessions/$session"
