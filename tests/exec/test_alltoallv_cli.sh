#!/usr/bin/env bash
# hecate-run alltoallv as a user meets it: matrices that are none, every transport, mpirun of both kinds. Its
# prediction is that of hecate-sim flows, number by number; Ctrl-C leaves nobody behind.
source "$(dirname "$0")/../support/tool.sh"
source "$source_dir/tests/support/mpi.sh"
run=("$build/hecate-run" alltoallv)
tool=("${run[@]}")

accepts() {
  "${run[@]}" "$@" >out.txt 2>err.txt || fail "exit code $?: $* ($(head -c 300 err.txt))"
  grep -v 'warning: times are of' err.txt >more.txt && fail "something on stderr: $*: $(head -c 300 more.txt)"
}

slow="1x4 nvlink=200M@1ms flops=1T mem=1G"
printf '0 200000 150001\n50000 7 75003\n300000 150000 1000\n' >three
printf '16 3000\n2000 0\n' >two
printf '4096\n' >one
printf '0\n' >zero
printf '0 0\n0 0\n' >zeros

# What is no matrix, or does not fit.
refuses 2 "expected a file with a matrix"
refuses 2 "missing: cannot be opened" missing
: >empty && refuses 2 "empty:1:1: expected a square matrix of bytes, found nothing" empty
printf '1 2\n3\n' >ragged && refuses 2 "ragged:2:2: expected 2 numbers" ragged
printf '1 2\n' >flat && refuses 2 "flat:2:1: expected 2 lines of 2 numbers, found 1" flat
printf '0 -1\n0 0\n' >negative && refuses 2 "negative:1:3: expected whole bytes" negative
printf '0 x\n0 0\n' >words && refuses 2 'found "x"' words
refuses 2 "expected" "$sample"
printf '0 1125899906842624\n0 0\n' >huge && refuses 2 "2.25e+06 GB in all, of this machine's memory" huge
awk 'BEGIN {for (i = 0; i < 257; i++) {for (j = 0; j < 257; j++) printf "1 "; print ""}}' >wide
refuses 2 "at most the 256 ranks that can be executed, found 257" wide
refuses 2 "unexpected argument" two three
refuses 2 nonsense two --nonsense
for option in --backend --transport --cluster; do refuses 2 nonsense two $option nonsense; done
refuses 2 "law: expected one of" two --cluster p4d-4x8 --law nonsense
refuses 2 "--law: expected --cluster" two --law max_min
for transport in emulated paced; do refuses 2 "expected --cluster C beside it" two --transport $transport; done
refuses 2 "at most the 2 devices" three --cluster "1x2 nvlink=1G flops=1T mem=1G"
refuses 2 "--iterations" two --iterations 0
refuses 2 "--warmup" two --warmup -1
OMPI_COMM_WORLD_SIZE=2 refuses 2 "add --backend mpi" two
"${run[@]}" --help >out.txt && has "busbw = algbw (n-1)/n"
"$build/hecate-run" --help | grep -q "^  alltoallv " || fail "hecate-run --help says nothing of it"
"${run[@]}" --list >out.txt && has emulated

# Every transport, as processes and as threads.
for threads in "" --threads; do
  for matrix in one two three zero zeros; do
    accepts $matrix --check $threads --iterations 3
    has "check passed"
  done
  for transport in shm emulated paced; do
    accepts three --check --transport $transport --cluster "$slow" --iterations 3 --warmup 0 $threads
    has "check passed: 2778033 bytes compared"
    has "size 451000 bytes, of the busiest rank"
  done
done
accepts two
has "not checked"
has "16 inside them"
accepts zero --cluster "$slow" && has "-            -"
# A ratio of measured to predicted only where the network predicted is the one imitated; how paced differs from it is said.
accepts three --cluster "$slow" && has "predicted: network law max_min"
grep -q "measured / predicted" out.txt && fail "shm is compared with a cluster that it does not imitate"
accepts three --cluster "$slow" --transport paced && has "measured / predicted" && has "60 to 100 kB pass unpaced"

# One JSON document, whose prediction is what hecate-sim flows prints, under every law.
for law in max_min nccl_rounds alpha_beta; do
  accepts three --json --check --cluster "$slow" --law $law --iterations 4
  mv out.txt run.json
  "$build/hecate-sim" flows three --cluster "$slow" --law $law --json >flows.json || fail "hecate-sim flows"
  expect run.json "$(value flows.json '"d[\"predicted\"] == %r" % {"cluster": "1x4 nvlink=200M@1ms flops=1T mem=1G", "law": d["law"], "time_s": d["makespan"], "algbw": d["algbw"], "busbw": d["busbw"]}')" True
  expect run.json 'd["size_bytes"]' "$(value flows.json 'd["size_bytes"]')"
done
expect run.json 'abs(d["algbw"] * d["time_s"]["median"] / d["size_bytes"] - 1) < 1e-12' True
expect run.json 'abs(d["busbw"] / d["algbw"] * 3 / 2 - 1) < 1e-12' True
expect run.json '0 < d["time_s"]["min"] <= d["time_s"]["median"] <= d["time_s"]["max"]' True
accepts two --json --iterations 2 # the median of two lies between them
cp out.txt pair.json
expect pair.json 'abs(2 * d["time_s"]["median"] / (d["time_s"]["min"] + d["time_s"]["max"]) - 1) < 1e-12' True
expect run.json '(d["ranks"], d["bytes_between_ranks"], d["bytes_inside_ranks"], d["iterations"])' "(3, 925004, 1007, 4)"
expect run.json 'd["check"]' "{'passed': True, 'compared_bytes': 8334099, 'wrong_bytes': 0}"
accepts zeros --json --cluster "$slow"
expect out.txt '(d["algbw"], d["busbw"], d["predicted"]["algbw"], d["predicted"]["time_s"])' "(None, None, None, 0)"
accepts two --json --transport emulated --cluster "$slow"
expect out.txt '(d["predicted"]["law"], "emulated network" in d["limits"][0])' "('alpha_beta', True)"
if [ -w /dev/full ]; then
  "${run[@]}" two --json >/dev/full 2>err.txt
  [ $? -eq 1 ] || fail "writing to a full device"
fi

# Ctrl-C: ended by the signal, nobody is left: every process of the run holds an end of a pipe, which is read to its end.
if has_children; then
  mkfifo held
  "${run[@]}" three --transport paced --cluster "1x3 nvlink=10K flops=1T mem=1G" >out.txt 2>err.txt 9>held &
  exec 8<held
  await_children $! 3
  kill -TERM $! # a background job of a script ignores SIGINT
  wait $!
  [ $? -eq 143 ] || fail "a signal does not end it"
  timeout 300 cat <&8 >held.txt || fail "a rank is left"
  exec 8<&-
  [ ! -s out.txt ] || fail "output of a run that was stopped"
else
  echo "SKIPPED alltoallv_cli (signal): no list of children in /proc"
fi

# More ranks than cores.
ranks=$(($(nproc) + 1))
if [ $ranks -le 16 ]; then
  awk -v n=$ranks 'BEGIN {for (i = 0; i < n; i++) {for (j = 0; j < n; j++) printf "%d ", 100 * i + j; print ""}}' >many
  accepts many --check
  has "warning: times are of $ranks ranks on $(nproc) core" err.txt
  has "fewer cores than ranks"
fi

# Under the process managers.
for kind in openmpi mpich; do
  has_mpi $kind || continue
  tool=(timeout -k 5 300 mpirun.$kind -n 3 "${run[@]}" --backend mpi)
  "${tool[@]}" three --check --json --iterations 5 --cluster "$slow" >mpi.json 2>err.txt </dev/null ||
    fail "$kind: exit code $?: $(head -c 500 err.txt)"
  expect mpi.json '(d["backend"], d["transport"], d["check"]["passed"], d["check"]["compared_bytes"])' "('mpi', 'mpi', True, 9260110)"
  "${tool[@]}" two --check >out.txt 2>err.txt </dev/null
  [ $? -eq 2 ] || fail "$kind: exit code $? of a matrix with fewer lines"
  [ "$(grep -c '^hecate-run' err.txt)" -eq 1 ] || fail "$kind: said: $(head -c 500 err.txt)"
  has "two: a rank for each of its 2 lines, found 3 started" err.txt
done

[ $failures -eq 0 ] || exit 1
echo "all tests of hecate-run alltoallv passed"
