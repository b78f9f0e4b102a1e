#!/usr/bin/env bash
# JSON statistics into another program: how well does a drafter do on each of these prompts?
# Usage: acceptance.sh
set -euo pipefail

prompts=$(mktemp)
trap 'rm -f "$prompts"' EXIT
cat >"$prompts" <<'JSONL'
{"prompt": "Explain rainbows to a child."}
{"prompt": "Write a Python function that reverses a string."}
{"prompt": "What is 12 times 12?"}
JSONL

# Every draft is scored whole, so that each says how good it was.
# A failed prompt is a line too; its exit code is that of the whole script (pipefail).
dspark run -m smollm2 --chat --prompts "$prompts" -n 48 --stats none --schedule fixed |
  python3 -c '
import json, sys
for line in sys.stdin:
    run = json.loads(line)
    if "error" in run:
        print(run["source"], run["error"]["message"], sep=": ")
        continue
    tau, accept, text = run["mean_acceptance_length"], run["draft_acceptance_rate"], run["text"]
    if tau is None:  # nothing was drafted, as for a text of one token
        print(f"no draft  {text[:50]!r}")
    else:
        print(f"tau {tau:.2f}  accept {accept:.1%}  {text[:50]!r}")
'
