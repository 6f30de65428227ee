#!/bin/bash
# tools/hosts: bad lines are told. Links carry no more than their rate, slow ones less; hosts see each other and nothing else; MPI
# runs across them. Nothing is left, also after a signal. No time is bounded from above: a busy machine is only slower.
source "$(dirname "$0")/../support/tool.sh"
hosts=$source_dir/tools/hosts
tool=("$hosts")

refuses 2 "HOSTSxRANKS first" up "four nic=1M"
refuses 2 "expected nic=RATE" up "2x1"
refuses 2 "nic: expected bytes/s" up "2x1 nic=fast"
refuses 2 "nic: expected bytes/s" up "2x1 nic=5"
refuses 2 "nic: expected a latency up to 1s" up "2x1 nic=1M@soon"
refuses 2 "uplink=RATE beside leaf=2" up "4x1 nic=1M leaf=2"
refuses 2 "expected nic=RATE, leaf=HOSTS or uplink=RATE" up "2x1 nic=1M fast"
refuses 2 "--slow: expected nic_out:node1:0.5" up "2x1 nic=1M" --slow nic_out:node1:2
refuses 2 "--name: expected" up "2x1 nic=1M" --name "../x"
refuses 2 "--mpi: expected openmpi or mpich" mpirun --mpi lam true
refuses 2 "expected up, exec" sideways
"$hosts" --help | grep -q "Exit codes" || fail "no help"

if [ "$(id -u)" != 0 ] || ! command -v ip >/dev/null || ! command -v tc >/dev/null ||
  ! ip netns add hecate-probe-$$ 2>/dev/null; then
  echo "SKIPPED hosts: network namespaces need root, ip and tc: that real TCP and MPI run between shaped hosts"
  exit 77
fi
ip netns del hecate-probe-$$
name=t$$
trap '"$hosts" down --name $name; rm -rf "$work"' EXIT
spaces() { ip netns list | grep -c "^hecate-$name-"; }

# ---- Rates ----
cat >tcp.py <<'P'
# What BYTES take, seconds of a monotonic clock. The sender waits for a word, so that none is under way before the clock starts,
# however late the receiver gets a core.
import socket, sys, time
role, ip, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
if role == "receive":
    server = socket.create_server((ip, 5001))
    print("ready", flush=True)
    connection, _ = server.accept()
    begin, got = time.monotonic(), 0
    connection.sendall(b"g")
    while got < n:
        got += len(connection.recv(1 << 20)) or sys.exit("the sender left")
    print(time.monotonic() - begin, flush=True)
else:
    connection = socket.create_connection((ip, 5001))
    connection.recv(1)
    connection.sendall(b"x" * n)
P
# bytes from host 0 to host 1, not faster than RATE: what the bucket holds is free.
not_faster() {
  local rate=$1 bytes=$2
  mkfifo ready
  "$hosts" exec --name $name 1 python3 tcp.py receive 10.77.0.2 "$bytes" >ready &
  local receiver=$!
  exec 9<ready
  read -r word <&9
  [ "$word" = ready ] || fail "the receiver says \"$word\""
  "$hosts" exec --name $name 0 python3 tcp.py send 10.77.0.2 "$bytes"
  read -r seconds <&9
  exec 9<&-
  wait $receiver
  rm ready
  awk -v s="$seconds" -v least="$(((bytes - 20000) * 1000 / rate))" 'BEGIN { exit !(s * 1000 >= least) }' ||
    fail "$bytes bytes in $seconds s at $rate bytes/s"
}
"$hosts" up "2x1 nic=2M" --name $name 2>/dev/null || fail "up"
[ "$(spaces)" = 3 ] || fail "$(spaces) namespaces, expected two hosts and the switches"
not_faster 2000000 1000000
refuses 2 "there is a cluster" up "2x1 nic=2M" --name $name
refuses 2 "expected a host from 0 to 1" exec --name $name 7 true
[ "$("$hosts" exec --name $name 0 ip route | grep -vc '^10\.7[78]\.0\.0/24')" = 0 ] || fail "a host has a way out"
refuses 2 "expected a share from 0" link --name $name nic_out:node1:2
refuses 2 "expected nic_out:node1:SHARE" link --name $name node1
refuses 2 "expected a host from 0 to 1" link --name $name nic_in:node2:1
refuses 2 "no uplink of leaf 0" link --name $name leaf_up:leaf0:0.5
"$hosts" link --name $name nic_out:node0:0.25 || fail "link"
not_faster 500000 500000
"$hosts" exec --name $name 0 sh -c 'exit 3'
[ $? = 3 ] || fail "the exit code of a command is lost"
"$hosts" down --name $name
[ "$(spaces)" = 0 ] || fail "down leaves $(ip netns list | grep "hecate-$name-")"
"$hosts" up "4x1 nic=4M leaf=2 uplink=8M" --name $name --slow nic_in:node1:0.25 2>/dev/null || fail "up with leaves"
not_faster 1000000 600000
"$hosts" down --name $name

# ---- A latency: a port where nobody listens refuses after a way there and one back ----
"$hosts" up "2x1 nic=4M@20ms" --name $name 2>/dev/null || fail "up with a latency"
wire=$(ip netns pids hecate-$name-net)
[ -n "$wire" ] || fail "no process carries packets"
"$hosts" exec --name $name 0 python3 -c '
import socket, sys, time
begin = time.monotonic()
refused = socket.socket().connect_ex(("10.77.0.2", 9))
sys.exit(refused != 111 or time.monotonic() - begin < 0.04)' || fail "a latency is not there, or nothing passes"
"$hosts" down --name $name
while grep -q '^State:.[^ZX]' "/proc/$wire/status" 2>/dev/null; do sleep 0.1; done # one that stays ends in ctest's limit

# ---- The table of predictions, a row of it ----
"$source_dir/validate/hosts/exchanges.py" "$build" --over sockets --rounds 2 --only "ring, flat" >out.txt 2>err.txt </dev/null ||
  fail "exchanges.py: $(tail -3 err.txt)"
has "| max_min |"
has "| ring | flat |"
has "Negative controls: a wrong rate is"

# ---- MPI ----
source "$source_dir/tests/support/mpi.sh"
unset OMPI_MCA_btl OMPI_MCA_oob_tcp_if_include OMPI_MCA_plm_rsh_agent
printf '0 90000 90000 90000\n90000 0 90000 90000\n90000 90000 0 90000\n90000 90000 90000 0\n' >matrix.txt
across() { timeout -k 5 300 "$hosts" run "2x2 nic=10M" "$@" >out.txt 2>err.txt </dev/null; }
# LINE MATRIX: what a calibration finds predicts an exchange that is measured beside it, at worst 3 times too slow or too fast. On a
# busy machine both take longer. What it starts from is 25 times too fast. Ranks that wait sleep, so a higher priority takes
# nothing from others: hosts of their own would not wait for whatever else runs here.
calibrates() {
  local mpirun=(timeout -k 5 300 "$hosts" mpirun --name $name nice -n -15)
  printf "$2" >ring.txt
  "$hosts" up "$1" --name $name 2>/dev/null || fail "up for a calibration"
  "${mpirun[@]}" "$build/hecate-validate" calibrate --backend mpi --model tiny --tokens 16 --repeat 1 --within 1s --out "$work/found.json" \
    >found.txt 2>err.txt </dev/null || fail "calibrate across $1: $(tail -3 err.txt)"
  "${mpirun[@]}" "$build/hecate-run" alltoallv "$work/ring.txt" --backend mpi --iterations 3 --warmup 1 --cluster "$work/found.json" --json \
    >ring.json 2>err.txt </dev/null || fail "an exchange across $1: $(tail -3 err.txt)"
  expect ring.json '1 / 3 < d["predicted"]["time_s"] / d["time_s"]["median"] < 3 or (d["predicted"], d["time_s"])' True
  "$hosts" down --name $name
}
if has_mpi openmpi; then
  across -- "$build/hecate-run" alltoallv "$work/matrix.txt" --backend mpi --iterations 2 --warmup 1 --check ||
    fail "alltoallv across hosts: $(cat err.txt)"
  has "passed"
  across -- "$build/hecate-run" "$sample" --backend mpi --policy ep,hecate --steps 2 --tokens 16 --check ||
    fail "replay across hosts: $(tail -3 err.txt)"
  has "hosts: 2, each with 2 ranks, as mpirun made them"
  grep -q "^planned *for 2x2 " out.txt || fail "plans for other hosts: $(grep "^planned" out.txt)"
  across -- "$build/hecate-run" "$sample" --backend mpi --policy ep --steps 1 --tokens 16 --cluster "1x4 nvlink=1G flops=10G mem=1G" ||
    fail "replay with a cluster of its own: $(tail -3 err.txt)"
  grep -q "^planned *for 1x4 " out.txt && ! grep -q "hosts:" out.txt || fail "a cluster that is named: $(head -20 out.txt)"
  # Whatever its iterations exchange, a calibration finds the rate of the cards, and knows the hosts.
  calibrates "2x2 nic=10M" '0 0 2000000 0\n0 0 0 2000000\n2000000 0 0 0\n0 2000000 0 0\n'
  has "network law: max_min" found.txt
  # And a latency, however apart hosts leave a barrier: not less, for nothing is sooner there.
  calibrates "2x1 nic=4M@20ms" '0 400000\n400000 0\n'
  awk '/^links +between nodes/ { found = $6 * 1e-6 } END { exit !(found > 0.0195) }' found.txt ||
    fail "calibrate across hosts 20 ms apart: $(grep "^links" found.txt)"
  # Exchanges that start at different times, and whole iterations: a row or two of their tables.
  "$source_dir/validate/hosts/exchanges.py" "$build" --over openmpi --rounds 2 --only "each host 50 ms later, flat" >out.txt 2>err.txt \
    </dev/null || fail "exchanges.py over MPI: $(tail -3 err.txt)"
  has "| each host 50 ms later | flat |"
  "$source_dir/validate/hosts/iterations.py" "$build" --rounds 1 --only pipemoe >out.txt 2>err.txt </dev/null ||
    fail "iterations.py: $(tail -3 err.txt)"
  has "| flexmoe, pipemoe | skewed | flat |"
  has "Negative controls: a wrong rate is"
fi
# It ends, too, in MPI_Finalize or after 20 s of it (runtime/exec/mpi/plugin_mpi.c).
if has_mpi mpich; then
  across --mpi mpich -- "$build/hecate-run" alltoallv "$work/matrix.txt" --backend mpi --iterations 2 --warmup 1 --check ||
    fail "alltoallv across hosts under MPICH: $(cat err.txt)"
  has "passed"
fi

# ---- Without root ----
someone() { env HOME="$work" TMPDIR="$work/tmp" setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
if has_mpi openmpi && someone unshare --user --map-root-user --net --mount true 2>/dev/null; then
  cp "$hosts" hosts
  mkdir -m 777 tmp
  chmod 755 .
  someone ./hosts run "2x1 nic=2M" -- echo here >out.txt 2>err.txt </dev/null || fail "run without root: $(tail -3 err.txt)"
  [ "$(grep -c here out.txt)" = 2 ] || fail "run without root: $(cat out.txt)"
  someone ./hosts up "2x1 nic=2M" >out.txt 2>err.txt && fail "up without root"
  grep -q "expected root" err.txt || fail "up without root: $(cat err.txt)"
fi

# ---- Nothing is left ----
if has_mpi openmpi; then
  mkfifo started
  "$hosts" run "2x1 nic=2M" -- sh -c "echo started >>$work/started; exec sleep 600" 2>/dev/null &
  run=$!
  exec 9<>started # does not wait for a writer
  until read -r -t 1 _ <&9; do
    kill -0 $run 2>/dev/null || { fail "mpirun starts nothing"; break; }
  done
  exec 9<&-
  kill -TERM $run
  wait $run
  [ $? = 130 ] || fail "exit code after a signal"
  [ -z "$(ip netns list | grep "^hecate-run$run-")" ] || fail "a signal leaves $(ip netns list | grep "^hecate-run$run-")"
fi

[ $failures -eq 0 ] || exit 1
echo "all command-line tests passed"
