#!/usr/bin/env bash
# README's example is what the command prints today, to the letter, and it is the command that tools/quickstart runs.
# Usage: test_readme.sh BUILD_DIR
set -u
build=$1
arguments=$(sed -n 's/^\$ hecate-sim \(traces\/.*\)$/\1/p' README.md | head -n 1)
shown=$(awk '/^\$ hecate-sim traces\// {on = 1; next} /^```$/ {on = 0} on' README.md)
read -ra words <<<"$arguments"
printed=$("$build/hecate-sim" "${words[@]}") || exit 1
if [ -z "$shown" ] || [ "$shown" != "$printed" ]; then
  diff <(printf '%s\n' "$shown") <(printf '%s\n' "$printed")
  echo "README.md does not show what hecate-sim prints; paste it again"
  exit 1
fi
trace=$(sed -n 's/^trace=//p' tools/quickstart) options=$(sed -n 's/^options=(\(.*\))$/\1/p' tools/quickstart)
if [ "$arguments" != "$trace $options" ]; then
  echo "README.md shows hecate-sim $arguments, tools/quickstart runs hecate-sim $trace $options"
  exit 1
fi
echo "README.md shows what hecate-sim prints"
