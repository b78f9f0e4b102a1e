#!/usr/bin/env bash
# A step for somebody's own CI: does this drafter leave the text of this (quantised) target as it is?
# Usage: check.sh [TARGET.gguf DRAFTER.gguf]
set -e

target=${1:-smollm2}
drafter=${2:-smollm2}
prompts=$(mktemp)
report=$(mktemp)
trap 'rm -f "$prompts" "$report"' EXIT
cat >"$prompts" <<'PROMPTS'
Explain rainbows to a child.
Write a Python function that reverses a string.
PROMPTS

# Exit code 1 on any divergence ends the script here, since -e is set.
dspark check -m "$target" -md "$drafter" --chat --prompts "$prompts" -n 48 --json >"$report"

python3 - "$report" <<'PYTHON'
import json, sys
summary = json.load(open(sys.argv[1]))["summary"]
print(f"{summary['identical']} identical, {summary['tie']} ties, tau {summary['mean_acceptance_length']:.2f}")
PYTHON
