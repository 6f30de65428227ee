#!/usr/bin/env bash
# The README's first screen is what the first command prints today, to the letter, for the policies that it shows: a new
# row of the policy table does not make it wrong. Usage: test_readme.sh BUILD_DIR
set -u
build=$1
shown=$(awk '/^\$ hecate-sim traces\/sample-synthetic.jsonl$/ {on = 1; next} /^```$/ {on = 0} on' README.md)
policies=$(printf '%s\n' "$shown" | awk '/^policy / {on = 1; next} !NF {on = 0} on {printf "%s%s", sep, $1; sep = ","}')
printed=$("$build/hecate-sim" traces/sample-synthetic.jsonl --policy "$policies") || exit 1
if [ -z "$policies" ] || [ "$shown" != "$printed" ]; then
  diff <(printf '%s\n' "$shown") <(printf '%s\n' "$printed")
  echo "README.md does not show what hecate-sim prints; paste it again"
  exit 1
fi
echo "README.md shows what hecate-sim prints"
