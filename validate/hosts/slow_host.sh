#!/usr/bin/env bash
# A slow host: iterations of two hosts of 20 MB/s, one of which computes at a half or a quarter of its speed, beside what
# hecate-sim --slow predicts with rates that were calibrated before.
#   validate/hosts/slow_host.sh BUILD     five minutes, on an idle machine of two cores or more; prints Markdown
# Exit codes: 0 done, 1 a run failed, 77 no rights here. The host is slowed by a real-time process that takes its core for
# so long of every 4 ms. A quota would count the polls of MPI too.
set -euo pipefail
build=$(cd "${1:?expected the build folder}" && pwd)
root=$(CDPATH='' cd -- "$(dirname "$(readlink -f "$0")")/../.." && pwd)
[ "$(id -u)" = 0 ] || { echo "slow_host: expected root, who alone may make network namespaces" >&2; exit 77; }
work=$(mktemp -d) hog=""
trap '[ -z "$hog" ] || kill $hog; rm -rf "$work"' EXIT
chmod 755 "$work"
(gzip -dc "$root/traces/charlm-e16-noaux.jsonl.gz" || true) 2>/dev/null | head -n 12 >"$work/trace.jsonl"
cat >"$work/hog.py" <<'P'
import os, sys, time
os.sched_setaffinity(0, {1})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
share, period, at = float(sys.argv[1]), 0.004, time.monotonic()
while True:
    while time.monotonic() < at + share * period:
        pass
    at += period
    time.sleep(max(at - time.monotonic(), 0))
P
printf '#!/bin/sh\ncase $(hostname) in host1) exec taskset -c 1 "$@" ;; *) exec taskset -c 0 "$@" ;; esac\n' >"$work/pin"
chmod +x "$work/pin"
# across PROGRAM OPTION...: what it prints is in $work/out
across() {
  "$root/tools/hosts" run "2x1 nic=20M" -- "$work/pin" "$build/$1" "${@:2}" --backend mpi --model cpu-512 --tokens 128 --layers 4 \
    >"$work/out" 2>"$work/err" || { echo "slow_host: $1 failed: $(tail -n 1 "$work/err")" >&2; exit 1; }
}
# Milliseconds an iteration of ep, in the table on standard input.
of_ep() { awk '$1 == "ep" && !found { found = $3 } END { print found }'; }
across hecate-validate calibrate --within 60s --out "$work/cluster.json"
job=("$work/trace.jsonl" --cluster "$work/cluster.json" --policy ep --schedule published)
echo "| speed of host 1 | ms an iteration, median | predicted | error |"
echo "|---|---|---|---|"
for speed in 1 0.5 0.25; do
  [ $speed = 1 ] || { python3 "$work/hog.py" "$(awk "BEGIN { print 1 - $speed }")" & hog=$!; }
  across hecate-run "${job[@]}" --steps 11
  measured=$(of_ep <"$work/out")
  [ -z "$hog" ] || kill $hog
  hog=""
  predicted=$("$build/hecate-sim" "${job[@]}" --ranks 2 --model cpu-512 --tokens 128 --warmup 0 --law max_min \
    --slow rank=1:$speed | of_ep)
  awk -v s=$speed -v m="$measured" -v p="$predicted" 'BEGIN { printf "| %s | %s | %s | %+.1f %% |\n", s, m, p, 100 * (p / m - 1) }'
done
