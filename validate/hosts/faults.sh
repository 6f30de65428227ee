#!/usr/bin/env bash
# Faults across hosts. What happens to a run whose link stalls, is cut or slows down, or whose host is killed, in the
# middle of it.
#   validate/hosts/faults.sh BUILD     prints Markdown; exit code 1: a run did not end as expected; 77: no rights here
set -u
build=$(cd "${1:?expected the build folder}" && pwd)
hosts=$(dirname "$(readlink -f "$0")")/../../tools/hosts
[ "$(id -u)" = 0 ] || { echo "faults: expected root, who alone may make network namespaces" >&2; exit 77; }
name=f$$ work=$(mktemp -d) failed=0 limit=5
run=""
trap '[ -z "$run" ] || kill "$run" 2>/dev/null; "$hosts" down --name $name; rm -rf "$work"' EXIT
printf '0 400000 400000\n400000 0 400000\n400000 400000 0\n' >"$work/m"

# start ITERATIONS: exchanges of 800 kB at 4 MB/s, 0.2 s each at best
start() {
  "$hosts" down --name $name
  "$hosts" up "3x1 nic=4M" --name $name 2>/dev/null || exit 1
  timeout -k 5 40 "$hosts" mpirun --name $name "$build/hecate-run" alltoallv "$work/m" --backend mpi --iterations "$1" --warmup 1 \
    --check --timeout $limit --json >"$work/out" 2>"$work/err" </dev/null &
  run=$!
}
# Until so many bytes have left host 0.
await() {
  for ((k = 0; k < 600; k++)); do
    [ "$("$hosts" exec --name $name 0 cat /proc/net/dev | awk '/eth0/ { sub(/.*:/, ""); print $9 }')" -gt "$1" ] && return
    sleep 0.1
  done
}
row() { printf '| %s | %s | %s | %s |\n' "$@"; }
# fault WHAT EXPECTED-PATTERN COMMAND...: ends with a message that has the pattern
fault() {
  local what=$1 pattern=$2 begin rc
  start 1000
  await 3000000
  "$hosts" "${@:3:1}" --name $name "${@:4}"
  begin=$(date +%s.%N)
  wait $run
  rc=$? run=""
  seconds=$(awk -v a="$begin" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f", b - a }')
  said=$(grep -aE -m1 "$pattern" "$work/err" | cut -c1-150)
  if [ $rc = 0 ] || [ $rc = 124 ] || [ -z "$said" ]; then
    failed=1
    said="NOT AS EXPECTED: exit code $rc, $(tail -1 "$work/err" | cut -c1-150)"
  fi
  row "$what" "a message within $limit s and what MPI needs to end" "$said" "$seconds"
}
# slower WHAT SHARE COMMAND...: takes what --slow predicts
slower() {
  local what=$1 share=$2 predicted
  start 12
  await 100000
  "$hosts" link --name $name "nic_in:node1:$share"
  wait $run
  run=""
  predicted=$("$build/hecate-sim" flows "$work/m" --cluster "3x1 nic=3.96M flops=1G mem=1G" --slow "link=nic_in:node1:$share" --json |
    sed -n 's/.*"makespan": \([0-9.e-]*\),/\1/p')
  measured=$(sed -n 's/.*"median": \([0-9.e-]*\),.*/\1/p' "$work/out" | head -1)
  row "$what" "slower: $predicted s an exchange" "${measured:-NOT AS EXPECTED: $(tail -1 "$work/err")} s, all bytes right" "-"
  [ -n "$measured" ] || failed=1
}
echo "| fault, in the middle of a run of three hosts | expected | what happened | seconds |"
echo "|---|---|---|---|"
fault "a NIC's incoming link stalls" "waited .* s for rank" link nic_in:node1:0
fault "a NIC's outgoing link stalls" "waited .* s for rank" link nic_out:node2:0
fault "a NIC's link is cut" "waited .* s for rank" link nic_in:node1:gone
fault "a host is killed" "waited .* s for rank|lost communication|daemon|MPI:" kill 2
slower "a NIC's incoming link drops to a half" 0.5
slower "a NIC's incoming link drops to a tenth" 0.1
exit $failed
