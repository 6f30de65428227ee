#!/usr/bin/env bash
# The README's first screen is what the first command prints today, to the letter, for the policies that it shows: a new
# row of the policy table does not make it wrong; and it is the command that tools/quickstart runs.
# Usage: test_readme.sh BUILD_DIR
set -u
build=$1
arguments=$(sed -n 's/^\$ hecate-sim \(traces\/.*\)$/\1/p' README.md | head -n 1)
shown=$(awk '/^\$ hecate-sim traces\// {on = 1; next} /^```$/ {on = 0} on' README.md)
policies=$(printf '%s\n' "$shown" | awk '/^policy / {on = 1; next} !NF {on = 0} on {printf "%s%s", sep, $1; sep = ","}')
read -ra words <<<"$arguments"
printed=$("$build/hecate-sim" "${words[@]}" --policy "$policies") || exit 1
if [ -z "$policies" ] || [ "$shown" != "$printed" ]; then
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
