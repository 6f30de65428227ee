#!/bin/bash
# hecate-sim breakeven: the golden values on the command line, both forms of output, wrong input.
source "$(dirname "$0")/../support/tool.sh"
sim=$build/hecate-sim
tool=("$sim" breakeven)
h100="2x8 nvlink=450G nic=50G nics=8 flops=600T eff=1 mem=80G"

"${tool[@]}" --cluster "$h100" --model mixtral-8x7b >out.txt 2>err.txt || fail "table: $(cat err.txt)"
grep -q '^in a node  *1 .* 1778 ' out.txt || fail "no 1778 in a node: $(cat out.txt)"
grep -q '^between nodes  *1 .* 16000 ' out.txt || fail "no 16000 between nodes: $(cat out.txt)"
awk 'length > 110 { exit 1 }' out.txt || fail "a line is too wide"
"${tool[@]}" --cluster "$h100" --model mixtral-8x7b --json >one.json 2>err.txt || fail "json: $(cat err.txt)"
"${tool[@]}" --json --model=mixtral-8x7b "--cluster=$h100" >two.json && cmp -s one.json two.json || fail "two runs differ"
expect one.json 'len(d["breakeven"])' 32
expect one.json '[round(b["tokens"]) for b in d["breakeven"] if b["exposed"]==1 and b["sent"]=="twice_fp32"]' "[1778, 16000]"
expect one.json '[round(b["tokens"]) for b in d["breakeven"] if b["exposed"]==0.1 and b["sent"]=="kept_fp32"]' "[133, 1200]"
expect one.json 'all(b["tokens_by_law"]>=b["tokens"]*0.8 for b in d["breakeven"])' True

"${tool[@]}" >out.txt 2>err.txt || fail "no arguments: $(cat err.txt)"
has p4d-4x8
has "8 devices share 1 NIC: each has 4.488 GB/s when all send"
for column in exposed 'weights once' 'weights twice' 'weights kept' plain 'by law'; do
  grep -q "^$column: " out.txt || fail "$column is not explained"
done
"${tool[@]}" --cluster "1x2 nvlink=1G flops=1T mem=1G" >out.txt || fail "one node"
grep -q between out.txt && fail "one node has nothing between nodes"
"${tool[@]}" --cluster "2x1 nic=1G flops=1T mem=1G" >out.txt || fail "one device per node"
grep -q '^in a node' out.txt && fail "one device per node has nothing in a node"
"${tool[@]}" --help >out.txt || fail help
has "hecate-sim breakeven --cluster dgx-h100"
"$sim" --help | grep -q breakeven || fail "hecate-sim --help says nothing of breakeven"
refuses 2 nonsense --cluster nonsense
refuses 2 nonsense --model nonsense
refuses 2 nonsense nonsense
refuses 2 "2 devices" --cluster "1x1 nvlink=1G flops=1T mem=1G"

# What is slow counts, or is refused where nothing that is asked about meets it.
"${tool[@]}" >plain.txt
for slow in rank=0:0.5 rank=1:0.5 rank=8:0.5 link=nic_out:node0:0.5 link=nic_in:node0:0.5 link=nic_out:node1:0.5 \
  link=port_in:device1:0.5 link=port_out:device1:0.5; do
  "${tool[@]}" --slow $slow >out.txt 2>err.txt || fail "--slow $slow: $(cat err.txt)"
  [ "$(sed 1,10d out.txt | diff - <(sed 1,9d plain.txt) | grep -c '^<')" -gt 0 ] || fail "--slow $slow changes no number"
done
for slow in rank=2:0.5 rank=9:0.5 link=nic_out:node2:0.5 link=port_in:device5:0.5 rank=1:0.5,rank=3:0.5; do
  refuses 2 "--slow: expected ranks 0, 1 and 8, whose copies are asked about, or links between them; found \"$slow\"" --slow $slow
done
refuses 2 "--slow: expected ranks 0 and 1, whose" --cluster "3x1 nic=1G flops=1T mem=1G" --slow rank=2:0.5
refuses 2 "--skew" --skew rank=1:1us

[ $failures -eq 0 ] || exit 1
echo "break-even: all passed"
