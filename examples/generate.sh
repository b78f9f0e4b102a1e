#!/usr/bin/env bash
# One-shot generation in a shell script: the answer in a variable, the exit code decides.
# Usage: generate.sh [PROMPT]
set -u

prompt=${1:-"Explain rainbows to a child."}

answer=$(dspark run -m smollm2 --chat -p "$prompt" -n 64 --stats none)
case $? in
  0) printf '%s\n' "$answer" ;;
  1) echo "the run failed for a reason that is explained above" >&2; exit 1 ;;
  2) echo "the command line is wrong" >&2; exit 2 ;;
  4) echo "the drafter does not belong to the target" >&2; exit 4 ;;
  5) echo "llama.cpp refused" >&2; exit 5 ;;
  130) echo "interrupted" >&2; exit 130 ;;
  *) echo "a bug in dspark" >&2; exit 3 ;;
esac
