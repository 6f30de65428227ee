#!/usr/bin/env bash
# Heterogeneous sharding: the settings of docs/policies.md where it pays, where calibration has repaired it, and where copies
# leave it nothing to do. Hecate with sharding against the same without, medians of iterations behind the first re-sharding.
source "$(dirname "$0")/../support/tool.sh"
command -v python3 >/dev/null || exit 77
"$build/hecate-trace" synth --workload lognormal --sigma 2 --layers 4 --experts 64 --source-ranks 32 --tokens 2048 --iterations 30 \
  --out loads.jsonl >out.txt 2>err.txt || fail "synth: $(cat err.txt)"

# gains FROM TO OPTION ARGS...: time without sharding over time with it is in between.
gains() {
  local from=$1 to=$2 option=$3
  shift 3
  "$build/hecate-sim" loads.jsonl --model gpt-moe-s --schedule published --warmup 15 --json \
    --policy "hecate-published:$option,period=10,hecate-nosharding:$option" "$@" >out.txt 2>err.txt || fail "$*: $(cat err.txt)"
  local gain
  gain=$(value out.txt 'd["policies"][1]["iteration_s"]["median"] / d["policies"][0]["iteration_s"]["median"]')
  python3 -c "import sys; sys.exit(not $from <= $gain <= $to)" || fail "sharding gains $gain, expected $from to $to: $option $*"
  echo "$gain $option $*"
}

# Attention hides the copies of 2 of 64 experts: the others' homes decide, unless copies after the gate do.
gains 1.15 1.5 refine=0 --cluster p3dn-4x8 --tokens 2048
gains 0.95 1.05 refine=1 --cluster p3dn-4x8 --tokens 2048
# It hides some 25: what is left has few tokens wherever it is.
gains 0.95 1.05 refine=0 --cluster p4d-4x8 --tokens 8192
gains 0.95 1.05 refine=1 --cluster p4d-4x8 --tokens 8192
# Memory for one copy only: shards are laid out for copies that do not come.
gains 0.85 1 refine=0,m=1 --cluster p4d-4x8 --tokens 8192
[ $failures -eq 0 ]
