#!/bin/bash
# hecate-sim sweep: the same bytes for any number of threads, shards and interruptions; rows equal to those of hecate-sim;
# hostile specs, journals and parts.
source "$(dirname "$0")/../support/tool.sh"
sim=$build/hecate-sim
tool=("$sim" sweep)
unset OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE SLURM_PROCID SLURM_STEP_NUM_TASKS
box="2x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G"
slow="1x8 nvlink=90G@9us flops=100T mem=16G"
tiny="1x4 nvlink=90G flops=100T mem=16G"
head -n 5 "$sample" >loads.jsonl
cat >spec.json <<END
{"trace": ["loads.jsonl", {"synth": {"workload": "zipf", "exponent": 1.2, "top_k": [1, 2], "layers": 2, "experts": 16,
           "source_ranks": 8, "tokens": 64, "iterations": 3, "seed": 3}}],
 "policy": ["ep", "eplb", "hecate", "fastermoe", "smartmoe"], "cluster": ["$box", "$slow", "$tiny"], "model": "tiny",
 "ranks": [4, 8], "tokens": ["auto", 512], "law": ["alpha_beta", "nccl_rounds"], "schedule": ["published", "lina"], "esp": [1, 2]}
END
rows=1440

# ---- Counting, threads ----
"${tool[@]}" spec.json --count >out.txt || fail count
has "$rows configurations: 3 trace x 3 cluster x 2 ranks x 2 tokens x 2 esp x 2 law x 2 schedule x 5 policy"
"${tool[@]}" spec.json --out whole --threads 1 >out.txt 2>err.txt || fail "sweep: $(cat err.txt)"
has "$rows rows, "
[ ! -s err.txt ] || fail "progress without a terminal: $(head -c 200 err.txt)"
[ "$(wc -l <whole.csv)" -eq $((rows + 1)) ] || fail "rows of whole.csv"
expect whole.json 'len(d["rows"])' $rows
"${tool[@]}" spec.json --out t2 --threads 2 >out.txt || fail "2 threads"
cmp -s t2.csv whole.csv && cmp -s t2.json whole.json || fail "2 threads: other bytes"
"${tool[@]}" spec.json --threads 5 >out.csv 2>err.txt && cmp -s out.csv whole.csv || fail "standard output of 5 threads differs"
"${tool[@]}" spec.json --out only.json --threads 5 >out.txt && cmp -s only.json whole.json || fail "only JSON, 5 threads"
[ -e only.csv ] && fail "CSV though JSON was asked for"
ls ./*.journal >/dev/null 2>&1 && fail "a journal is left"
"${tool[@]}" "$source_dir/traces/sample-sweep.json" --count >out.txt || fail "the example's count"
has "144 configurations"
"${tool[@]}" "$source_dir/traces/sample-sweep.json" --shard 0/32 --out sampled >out.txt 2>err.txt || fail "the example from here: $(cat err.txt)"

# ---- Reasons ----
expect whole.json 'sum("error" in r for r in d["rows"]) > 0' True
expect whole.json 'all("error" in r for r in d["rows"] if r["ranks"] == 8 and r["cluster"].startswith("1x4"))' True
expect whole.json 'all(("error" in r) == (r["policy"] != "ep") for r in d["rows"] if r["esp"] == 2 and r["ranks"] == 4)' True
expect whole.json 'any("error" not in r for r in d["rows"] if r["esp"] == 1 and r["policy"] == "hecate")' True
expect whole.json 'all(r["synthetic"] for r in d["rows"] if "error" not in r)' True

# ---- Rows against hecate-sim ----
check_row() { # FILE CONDITION ARGS...: every policy of the rows that meet it has what hecate-sim says of it
  local file=$1 condition=$2
  shift 2
  "$sim" "$@" --json >one.json 2>err.txt || { fail "hecate-sim $*: $(cat err.txt)"; return; }
  command -v python3 >/dev/null || return
  python3 - "$file" "$condition" <<'END' >out.txt 2>&1 || fail "not hecate-sim's: $(tail -3 out.txt)"
import json, sys
rows = [r for r in json.load(open(sys.argv[1]))["rows"] if eval(sys.argv[2])]
theirs = json.load(open("one.json"))
assert len(rows) == len(theirs["policies"]) > 1, (len(rows), len(theirs["policies"]))
for r, p in zip(rows, theirs["policies"]):
    assert "error" not in r, r["error"]
    assert (r["policy"], r["schedule_used"]) == (p["name"], p["schedule"])
    assert (r["model_used"], r["cluster_used"]) == (theirs["model"], theirs["cluster"])
    assert r["ranks_used"] == theirs["ranks"] and r["tokens_used"] == theirs["tokens_per_rank"]
    assert r["iterations"] == theirs["iterations"] and r["phase_used"] == theirs["phase"] and r["law"] == theirs["law"]
    for key in ("iteration_s", "speedup_vs_ep", "speedup_vs_best_rearrangement", "bound_s", "vs_bound", "overload_factor",
                "exposed_s", "compute_s", "planning_s", "wait_s", "bytes", "peak_memory_bytes", "fits"):
        assert r[key] == p[key], (r["policy"], key, r[key], p[key])
    assert r.get("hidden_share") == p.get("hidden_share")
END
}
policies=(--policy ep,eplb,hecate,fastermoe,smartmoe --model tiny)
check_row whole.json 'r["trace"]=="loads.jsonl" and r["cluster"][:3]=="2x4" and r["ranks"]==8 and r["tokens"]==512 and r["law"]=="alpha_beta" and r["schedule"]=="published" and r["esp"]==1' \
  loads.jsonl --cluster "$box" --ranks 8 --tokens 512 --schedule published "${policies[@]}"
"$build/hecate-trace" synth --workload zipf --exponent 1.2 --top-k 2 --layers 2 --experts 16 --source-ranks 8 --tokens 64 \
  --iterations 3 --seed 3 --out made.jsonl || fail synth
check_row whole.json '"top_k=2" in r["trace"] and r["cluster"][:3]=="1x8" and r["ranks"]==4 and r["tokens"]=="auto" and r["law"]=="nccl_rounds" and r["schedule"]=="lina" and r["esp"]==1' \
  made.jsonl --cluster "$slow" --ranks 4 --law nccl_rounds --schedule lina "${policies[@]}"

# One group: its policies are computed one by one, yet are what a comparison of all says.
printf '{"trace": "loads.jsonl", "cluster": "%s", "model": "tiny", "ranks": 8, "micro_batches": 2, "period": 3}' "$box" >one-group.json
"${tool[@]}" one-group.json --out group --threads 3 >out.txt || fail "one group"
check_row group.json True loads.jsonl --cluster "$box" --model tiny --ranks 8 --micro-batches 2 --period 3
for i in 0 1 2 3; do "${tool[@]}" one-group.json --out group --shard $i/4 >out.txt || fail "shard $i of one group"; done
"${tool[@]}" merge group.part-?-of-4 --out regroup >out.txt && cmp -s regroup.json group.json || fail "one group in shards"
"${tool[@]}" one-group.json --out lone --shard 0/1 >out.txt && cmp -s lone.csv group.csv || fail "one shard is the whole"
printf '{"trace": "'"$sample"'", "policy": ["ep", "eplb"], "ranks": 16, "warmup": [0, 99]}' >none-left.json
"${tool[@]}" none-left.json --out left >out.txt || fail "no iteration is left"
has "4 rows, 2 of configurations that cannot run"
expect left.json '["error" in r for r in d["rows"]]' "[False, False, True, True]"
expect left.json 'd["rows"][2]["error"]' "--warmup: no iteration is left to report"
sed 's/\[0, 99\]/99/' none-left.json >none-of-all.json # none of all: the rows, and a failure
"${tool[@]}" none-of-all.json --out nothing --report nothing.html >out.txt 2>err.txt
[ $? -eq 1 ] && has "none of the 2 configurations can run, the first: --warmup: no iteration is left to report" err.txt ||
  fail "nothing runs: $(cat err.txt)"
has "2 rows, 2 of configurations that cannot run" && [ -s nothing.csv ] && [ -s nothing.json ] && [ ! -e nothing.journal ] ||
  fail "nothing runs: no rows"
for i in 0 1; do "${tool[@]}" none-of-all.json --out nothing --shard $i/2 >out.txt || fail "shard $i in which nothing runs"; done
"${tool[@]}" merge nothing.part-?-of-2 >merged.txt 2>err.txt
[ $? -eq 1 ] && cmp -s merged.txt nothing.csv && has "none of the 2 configurations" err.txt || fail "merge of nothing: $(cat err.txt)"

# ---- Shards ----
for i in 0 1 2; do
  "${tool[@]}" spec.json --out part --shard $i/3 >out.txt 2>err.txt || fail "shard $i: $(cat err.txt)"
  [ "$(wc -l <part.part-$i-of-3)" -gt $((rows / 6)) ] || fail "shard $i has few rows"
done
"${tool[@]}" merge part.part-2-of-3 part.part-0-of-3 part.part-1-of-3 --out merged >out.txt 2>err.txt || fail "merge: $(cat err.txt)"
cmp -s merged.csv whole.csv && cmp -s merged.json whole.json || fail "merged: other bytes than whole"
SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=3 "${tool[@]}" spec.json --out env >out.txt || fail "a shard from Slurm"
has "shard 1/3, from Slurm"
cmp -s env.part-1-of-3 part.part-1-of-3 || fail "a shard from Slurm differs"
OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=3 "${tool[@]}" spec.json --out env >out.txt || fail "a shard from Open MPI"
cmp -s env.part-2-of-3 part.part-2-of-3 || fail "a shard from Open MPI differs"
SLURM_PROCID=0 SLURM_NTASKS=3 "${tool[@]}" spec.json --count >out.txt && grep -q shard out.txt && fail "a batch script is no shard"
sed 's/"exponent": 1.2/"exponent": 1.3/' spec.json >other.json
"${tool[@]}" other.json --out other --shard 1/3 >out.txt || fail "another spec"
tool=("$sim" sweep merge)
refuses 2 "all 3, missing: 2 (made by --shard I/3" part.part-0-of-3 part.part-1-of-3
refuses 2 "missing: 0, 2 " part.part-1-of-3
refuses 2 "twice" part.part-0-of-3 part.part-1-of-3 part.part-1-of-3
refuses 2 "same sweep" part.part-0-of-3 other.part-1-of-3 part.part-2-of-3
refuses 2 "expected a part" part.part-0-of-3 whole.csv part.part-2-of-3
refuses 2 "cannot be opened" absent
refuses 2 "expected parts"
sed -i '$d' other.part-1-of-3
head -n -1 part.part-1-of-3 >short
refuses 2 "missing or broken" part.part-0-of-3 short part.part-2-of-3
sed '5s/.$/&7/' part.part-1-of-3 >broken
cmp -s broken part.part-1-of-3 && fail "nothing was broken"
refuses 2 "1 rows of shard 1/3" part.part-0-of-3 broken part.part-2-of-3
tool=("$sim" sweep)

# ---- Killed and resumed ----
# A sweep that nobody waits for the end of: however fast the machine, it is killed in the middle.
sed 's/"tokens": \[[^]]*\]/"tokens": ['"$(seq -s, 300 1000)"']/' spec.json >endless.json
begin_endless() { # NAME: returns when some rows are in its journal; $pid
  "${tool[@]}" endless.json --out "$1" --threads 2 >out.txt 2>err.txt &
  pid=$!
  until [ "$(wc -l 2>/dev/null <"$1.journal" || echo 0)" -gt 200 ]; do
    kill -0 $pid 2>/dev/null || { fail "an endless sweep ended: $(cat err.txt)"; return; }
    sleep 0.01
  done
}
begin_endless killed
kill -9 $pid
wait $pid 2>/dev/null
[ ! -e killed.csv ] && [ ! -e killed.json ] || fail "an output of a killed sweep"
"${tool[@]}" endless.json --out killed --threads 2 >out.txt 2>err.txt &
pid=$!
until [ -s err.txt ]; do
  kill -0 $pid 2>/dev/null || { fail "the resumed sweep ended: $(cat err.txt)"; break; }
  sleep 0.01
done
kill -9 $pid
wait $pid 2>/dev/null
grep -qE "^hecate-sim sweep: [0-9]+ of [0-9]+ rows taken over from killed.journal\$" err.txt || fail "resume: $(cat err.txt)"
# Stopped by a signal: one line, and it dies of that signal.
begin_endless halted
kill -TERM $pid # a background job of a script ignores SIGINT
wait $pid 2>/dev/null
[ $? -eq 143 ] || fail "a signal does not end it"
done_rows=$(sed -n 's/^hecate-sim sweep: \([0-9]*\) of [0-9]* rows done; the same command goes on from there$/\1/p' err.txt)
[ -n "$done_rows" ] && [ "$(wc -l <err.txt)" -eq 1 ] || fail "stopped: $(cat err.txt)"
[ "${done_rows:-0}" -gt 100 ] && [ "${done_rows:-0}" -le "$(wc -l <halted.journal)" ] || fail "stopped: $done_rows rows"
# A journal of half the rows, whole, torn in the middle of its last line, and with a damaged line: the same bytes come out.
(ulimit -f 100 && exec "${tool[@]}" spec.json --out half >out.txt 2>err.txt) # KiB: the journal cannot be written on
[ $? -eq 1 ] && has "half.journal: cannot be written" err.txt || fail "a full disk: $(cat err.txt)"
[ "$(wc -l <half.journal)" -gt 120 ] && [ "$(wc -l <half.journal)" -lt $rows ] || fail "a full disk: rows are lost"
cp half.journal torn.journal
truncate -s -7 torn.journal
sed -i '100s/.$/&7/' torn.journal
"${tool[@]}" spec.json --out half >out.txt 2>err.txt || fail "resume: $(cat err.txt)"
grep -qE "^hecate-sim sweep: [0-9]+ of $rows rows taken over from half.journal\$" err.txt || fail "resume: $(cat err.txt)"
cmp -s half.csv whole.csv && cmp -s half.json whole.json || fail "resumed: other bytes than whole"
"${tool[@]}" spec.json --out torn --threads 3 >out.txt 2>err.txt || fail "torn: $(cat err.txt)"
cmp -s torn.csv whole.csv && cmp -s torn.json whole.json || fail "torn: other bytes than whole"
# A finished row is taken from the journal, not computed again: one that says something else stays.
if command -v python3 >/dev/null; then
  python3 - <<'END'
lines = open("part.part-1-of-3").read().split("\n")[:-1]
def total(text):
    s = 0xcbf29ce484222325
    for c in text.encode():
        s = (s ^ c) * 0x100000001b3 % 2**64
    return "%016x" % s
body = lines[7][17:].split(" ")
assert body[1] in ("ok", "no") and lines[7][:16] == total(lines[7][17:])
new = body[0] + " no marked"
lines[7] = total(new) + " " + new
open("marked.part-1-of-3.journal", "w").write("\n".join(lines) + "\n")
END
  python3 - "$sim" <<'END' || fail "two processes on one journal"
import fcntl, subprocess, sys
with open("held.csv.journal", "a") as held:
    fcntl.lockf(held, fcntl.LOCK_EX)
    run = subprocess.run([sys.argv[1], "sweep", "one-group.json", "--out", "held.csv"], capture_output=True, text=True)
    sys.exit(0 if run.returncode == 2 and "in use by another process" in run.stderr else 1)
END
  "${tool[@]}" spec.json --out marked --shard 1/3 >out.txt || fail marked
  grep -q "no marked" marked.part-1-of-3 || fail "a finished row was computed again"
fi
head -c 100 part.part-1-of-3 >begun.part-1-of-3.journal # killed while it began
"${tool[@]}" spec.json --out begun --shard 1/3 >out.txt && cmp -s begun.part-1-of-3 part.part-1-of-3 || fail "torn header"
cp part.part-1-of-3 strange.csv.journal
refuses 2 "not of this sweep" spec.json --out strange.csv
cmp -s strange.csv.journal part.part-1-of-3 || fail "a foreign journal was changed"
cp part.part-1-of-3 changed.part-1-of-3.journal
cp loads.jsonl kept.jsonl
sed -i '1s/"name":"/"name":"x/' loads.jsonl
cmp -s loads.jsonl kept.jsonl && fail "the trace did not change"
refuses 2 "not of this sweep" spec.json --out changed --shard 1/3
mv kept.jsonl loads.jsonl

# ---- Another build ----
# Its rows are neither taken over nor merged. What it is told by: contents and names of sources, wherever the tree lies.
made=$(sed -n 's/.*hec_source_digest.. = "\([0-9a-f]*\)";/\1/p' "$build/source_digest.c")
[ ${#made} -eq 64 ] || fail "no digest of the sources"
LC_ALL=C sed "s/$made/${made:1}0/" "$sim" >other && chmod +x other
cmp -s other "$sim" && fail "the program does not know its sources"
cp part.part-1-of-3 rebuilt.part-1-of-3.journal
tool=(./other sweep)
refuses 2 "version or build differ" spec.json --out rebuilt --shard 1/3
./other sweep spec.json --out theirs --shard 1/3 >out.txt || fail "the other build"
tool=("$sim" sweep merge)
refuses 2 "a part of the same sweep" part.part-0-of-3 theirs.part-1-of-3 part.part-2-of-3
tool=("$sim" sweep)
if command -v cmake >/dev/null; then
  mkdir tree && cp -r "$source_dir"/{models,runtime,sim,tools,traces} tree
  digest() { cmake -DROOT="$1" -DOUT="$work/digest.c" -P "$source_dir/tools/front/sweep/source_digest.cmake" && cat digest.c; }
  mine=$(digest "$source_dir")
  [ -n "$mine" ] && [ "$(digest "$work/tree")" = "$mine" ] || fail "the place of a tree changes the digest"
  echo "/* */" >>tree/sim/law_max_min.c && [ "$(digest "$work/tree")" != "$mine" ] || fail "a changed law is the same build"
fi

# ---- Groups of ranks ----
printf '{"trace": "loads.jsonl", "cluster": "%s", "model": "tiny", "ranks": 8, "mp": [1, 2, 3], "policy": ["ep", "hecate"]}' "$box" >ranks.json
"${tool[@]}" ranks.json --out mp.json >out.txt || fail "mp"
check_row mp.json 'r["mp"]==2' loads.jsonl --cluster "$box" --ranks 8 --mp 2 --policy ep,hecate --model tiny
expect mp.json '["error" in r for r in d["rows"]]' "[False, False, False, False, True, True]"
expect mp.json 'd["rows"][0]["iteration_s"] != d["rows"][2]["iteration_s"]' True

# ---- Stragglers ----
printf '{"trace": "loads.jsonl", "cluster": "%s", "model": "tiny", "ranks": [4, 8], "slow": ["", "rank=3:0.5,rank=4:0.5"], "skew": ["", "rank=2:500us"], "policy": ["ep", "hecate"]}' "$box" >late.json
"${tool[@]}" late.json --out stragglers --report late.html >out.txt || fail "slow, skew"
check_row stragglers.json 'r["ranks"]==8 and r["slow"]=="" and r["skew"]==""' loads.jsonl --cluster "$box" --ranks 8 --policy ep,hecate --model tiny
check_row stragglers.json 'r["ranks"]==8 and r["slow"]=="rank=3:0.5,rank=4:0.5" and r["skew"]=="rank=2:500us"' loads.jsonl --cluster "$box" --ranks 8 \
  --policy ep,hecate --model tiny --slow rank=3:0.5,rank=4:0.5 --skew rank=2:500us
expect stragglers.json '[(r["slow"], r["ranks"]) for r in d["rows"] if "error" in r] == [("rank=3:0.5,rank=4:0.5", 4)] * 4' True
expect stragglers.json 'len({r["iteration_s"]["median"] for r in d["rows"] if "error" not in r and r["policy"] == "ep"})' 6
expect mp.json '{(r["slow"], r["skew"]) for r in d["rows"]}' "{('', '')}"

# ---- Hostile specs; others: tests/sim/test_sweep.c ----
try() { # PART JSON
  printf '%s' "$2" >bad.json
  refuses 2 "$1" bad.json --out unmade
  grep -q "bad.json:" err.txt || fail "no file and line: $(cat err.txt)"
}
try "bad.json:2: policy[1]: expected one of the" '{"trace": "loads.jsonl",
  "policy": ["ep", "nonsense"]}'
printf '{"iter":7}\n' | cat loads.jsonl - >late.jsonl # a bad record far in is found before anything runs
try "late.jsonl:" '{"trace": "late.jsonl"}'
ls unmade.* >/dev/null 2>&1 && fail "something was written for a bad spec"
refuses 2 "cannot be opened" absent.json
refuses 2 "expected a spec"
refuses 2 "--shard" spec.json --shard 3/3 --out x
refuses 2 "--shard" spec.json --shard 1of3 --out x
refuses 2 "expected --out FILE" spec.json --shard 1/3
refuses 2 "--threads" spec.json --threads 0
refuses 2 "--out" spec.json --out absent/x.csv
"${tool[@]}" --help >out.txt || fail help
has "sample-sweep.json"
sed -n '/^Examples$/,/^Exit codes/p' out.txt | grep -q "Spec: a JSON" && fail "reference under Examples"
sed -n '/^Notes$/,/^Examples$/p' out.txt | grep -q "Spec: a JSON" || fail "no notes"
"$sim" --help | grep -q "^  sweep " || fail "hecate-sim --help says nothing of sweep"

[ $failures -eq 0 ] || exit 1
echo "sweep: all passed"
