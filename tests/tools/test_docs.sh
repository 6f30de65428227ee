#!/usr/bin/env bash
# Every command that README.md and docs/ show runs. Each line of a block that begins with hecate- (or "$ hecate-"), in an empty
# folder where the files that pages name stand. Where a page shows the output, its numbers are those of today, and README's is
# that to the letter. Other commands run on the first five iterations of the committed traces; files that they write are there, too.
# A block under a line "<!-- not run: WHY -->" is left out.
# Tables that a command makes are what it prints.
# Usage: test_docs.sh BUILD_DIR
source "$(dirname "$0")/../support/tool.sh"
export PATH=$build:$PATH HECATE_SHARED=$work/none

# ---- The files that pages name ----
mkdir short whole short/traces
cp "$source_dir"/traces/*.json short/traces
sed -i 's/, "nccl_rounds"//; s/"auto", 4096/"auto"/' short/traces/sample-sweep.json # a quarter of its rows, and the quick ones
for trace in "$source_dir"/traces/*.jsonl; do head -n 6 "$trace" >short/traces/"${trace##*/}"; done
for trace in "$source_dir"/traces/*.jsonl.gz; do zcat "$trace" | head -n 6 | gzip >short/traces/"${trace##*/}"; done
ln -s "$source_dir/traces" whole/traces
cd short || exit 1
mkdir moe-traces
awk 'BEGIN {
  for (step = 0; step < 13; step += 3)
    for (layer = 1; layer < 3; layer++) {
      printf "{\"step\": %d, \"stage\": \"pre_dispatch\", \"block\": \"decoder\", \"layer\": %d, \"rank\": 0, \"num_tokens\": 256, \"topk\": 2, \"top_indices\": [", step, layer
      for (token = 0; token < 256; token++)
        printf "%s[%d, %d]", token ? ", " : "", token * (step + layer) % 128, (token * (step + layer) + 1 + step) % 128
      print "]}"
    }
}' >moe-traces/router_trace_rank0.jsonl
hecate-trace import moe-traces --experts 128 --out trace.jsonl >out.txt 2>err.txt || fail "no trace: $(cat err.txt)"
cp trace.jsonl TRACE
awk 'BEGIN {
  for (layer = 0; layer < 2; layer++) {
    for (e = 0; e < 128; e++) row = row (e ? ", " : "") e
    map = map (layer ? ", " : "") "[" row "]"
    row = ""
  }
  print "{\"physical_to_logical_map\": [" map "]}"
}' >expert_map.json
echo '{"model_type": "olmoe", "hidden_size": 256, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 4,
  "num_hidden_layers": 2, "num_experts": 128, "num_experts_per_tok": 2, "vocab_size": 1000, "max_position_embeddings": 256}' >config.json
cp "$source_dir/README.md" FILE
cp -r "$source_dir/tests/validate/cases/gpu" DIR

# ---- The version ----
version=$(sed -n 's/^#define HECATE_VERSION_[A-Z]* //p' "$source_dir/runtime/exec/package/hecate.h" | paste -sd.)
grep -nE 'hecate-[a-z]+ [0-9]+\.[0-9]+\.[0-9]+' "$source_dir"/README.md "$source_dir"/docs/*.md | grep -vF " $version" && fail "another version"
[ "$(sed -n 's/^## \[\([0-9.]*\)\].*/\1/p' "$source_dir/CHANGELOG.md" | head -1)" = "$version" ] || fail "CHANGELOG.md begins with another version"

# ---- What pages show ----
# In a block with a "$ " the other lines are output. "PAGE <tab> command" and, below it, "<tab>line" of the output that is shown. Lines that end in \ go on.
blocks() {
  awk -v page="${1#"$source_dir/"}" '
    /^<!-- not run: ./ {left = 1; next}
    /^```/ {on = !on; if (!on) left = 0; shown = dollar = 0; next}
    !on && NF {left = 0}
    !on || left {next}
    {line = held $0; held = ""}
    line ~ /\\$/ {sub(/\\$/, "", line); held = line; next}
    line ~ /^\$ / {dollar = 1}
    line ~ /^\$ hecate-/ || (!dollar && line ~ /^hecate-/) {shown = sub(/^\$ /, "", line); print page "\t" line; next}
    shown {print "\t" line}' "$1"
}

numbers() { grep -oE '[0-9]+([.][0-9]+)?' <<<"$1" | tr '\n' ' '; }

# The numbers of each line that is shown are those of a line that was printed.
check_shown() {
  local line found
  while IFS= read -r line; do
    found=$(numbers "$line")
    [ -z "$found" ] || grep -qxF "$found" printed.txt || fail "$page: $command: prints no line with the numbers of \"$line\""
  done <shown.txt
}

n_run=0 n_shown=0 command=""
declare -A ran # commands whose output no page shows run once, however many pages have them
run() {
  [ -n "$command" ] || return
  n_run=$((n_run + 1))
  if [ ! -s shown.txt ]; then
    [ -z "${ran[${command%%  #*}]-}" ] || return
    ran[${command%%  #*}]=yes
  fi
  if [ -s shown.txt ]; then
    cd ../whole && find ../short -maxdepth 1 -type f -exec ln -sf {} . ';' || exit 1
  fi
  timeout 1800 bash -c "$command" >../short/out.txt 2>../short/err.txt </dev/null || fail "$page: $command: exit code $?: $(head -c 300 ../short/err.txt)"
  cd ../short || exit 1
  [ -s shown.txt ] || return
  n_shown=$((n_shown + 1))
  [ "$page" != README.md ] || cmp -s shown.txt out.txt || fail "README.md: paste again what $command prints: $(diff shown.txt out.txt)"
  while IFS= read -r line; do numbers "$line"; echo; done <out.txt >printed.txt
  check_shown
}

for file in "$source_dir"/README.md "$source_dir"/docs/*.md; do
  command=""
  while IFS=$'\x1f' read -r first second; do
    if [ -n "$first" ]; then
      run
      page=$first command=$second
      : >shown.txt
    else
      printf '%s\n' "$second" >>shown.txt
    fi
  done < <(blocks "$file" | tr '\t' '\037')
  run
done
# What stands between "<!-- made by: COMMAND -->" and "<!-- end -->" is what the command prints.
n_made=0
for file in "$source_dir"/README.md "$source_dir"/docs/*.md; do
  while IFS= read -r command; do
    n_made=$((n_made + 1))
    awk -v begin="<!-- made by: $command -->" '$0 == begin {on = 1; next} /^<!-- end -->$/ {on = 0} on' "$file" >shown.txt
    bash -c "$command" >printed.txt && cmp -s shown.txt printed.txt || fail "$file: paste again what \"$command\" prints: $(diff shown.txt printed.txt | head -n 5)"
  done < <(sed -n 's/^<!-- made by: \(.*\) -->$/\1/p' "$file")
done
[ $n_made -ge 1 ] || fail "no page has a generated part"

# README.md shows what tools/quickstart runs.
words=$(sed -n 's/^\$ hecate-sim \(traces\/.*\)$/\1/p' "$source_dir/README.md" | head -n 1)
quick="$(sed -n 's/^trace=//p' "$source_dir/tools/quickstart") $(sed -n 's/^options=(\(.*\))$/\1/p' "$source_dir/tools/quickstart")"
[ "$words" = "$quick" ] || fail "README.md shows hecate-sim $words, tools/quickstart runs hecate-sim $quick"

# How many policies README.md promises is how many rows the list has.
listed=$(hecate-sim --list policies | grep -c '^| `')
grep -q "It compares $listed policies:" "$source_dir/README.md" || fail "README.md: expected \"It compares $listed policies:\""

[ $n_run -ge 20 ] && [ $n_shown -ge 1 ] || fail "only $n_run commands ran, $n_shown with output"

[ $failures -eq 0 ] || exit 1
echo "$n_run commands of README.md and docs/ run; $n_shown show the numbers of today"
