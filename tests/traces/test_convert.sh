#!/usr/bin/env bash
# hecate-trace convert: there and back are the same bytes, keys that nobody knows included. The two forms say the same to
# `info` and to another JSON reader; what is no trace leaves no output.
# Usage: test_convert.sh BUILD_DIR
. "$(dirname "$0")/../support/tool.sh"
tool=("$build/hecate-trace" convert)

convert() { "${tool[@]}" "$@" >out.txt 2>err.txt || fail "$*: $(cat err.txt)"; }
shows() { "$build/hecate-trace" info --json "$1" | grep -v '"trace"' >"$2" || fail "info $1"; }

# A header of everything that could confuse a copier.
cat >odd.jsonl <<'END'
{"format":"hecate-trace","version":1, "mine":{"iterations":[1,{"a":"]}"}]},"iterationsX":"iterations\",{[","layers":1,"experts":3,"x":[ ],"top_k":1,"\u00e9\"":"\\","name":"caf\u00e9 \\\" }"}
{"iter":0,"label":"a, \"b\" ]}","mine":[{"iter":1}],"layers":[[1,2,3]]}
{"iter":0, "micro_batch":1, "layers":[[4,5, 6]]}
{"layers":[[0,0,4294967295]],"iter":9,"tokens_per_source":[7],"future":{"k":1e-300}}
END
cp "$sample" sample.jsonl
gzip -dc "$source_dir/traces/charlm-e16-aux.jsonl.gz" >charlm.jsonl
for name in odd sample charlm; do
  convert $name.jsonl --out a.json
  has "as one JSON object"
  convert a.json --out b.jsonl
  has "$(($(wc -l <$name.jsonl) - 1)) records as JSON Lines"
  cmp $name.jsonl b.jsonl || fail "$name: there and back differ"
  convert a.json --out c.json
  cmp a.json c.json || fail "$name: object to object differs"
  convert $name.jsonl --out d.jsonl.gz
  gzip -dc d.jsonl.gz | cmp - $name.jsonl || fail "$name: gzip holds other bytes"
  convert d.jsonl.gz --out e.json.gz
  gzip -dc e.json.gz | cmp - a.json || fail "$name: gzip of an object holds other bytes"
  "${tool[@]}" e.json.gz --out - --form jsonl 2>err.txt | cmp - $name.jsonl || fail "$name: standard output differs"
  has "written   -" err.txt
  shows $name.jsonl 1.txt
  shows a.json 2.txt
  cmp 1.txt 2.txt || fail "$name: info says something else of the object"
  expect a.json '[h.pop("iterations") for h in [dict(d)]][0] == [json.loads(x) for x in open("'$name'.jsonl")][1:]' True
  expect a.json '{k: v for k, v in d.items() if k != "iterations"} == json.loads(open("'$name'.jsonl").readline())' True
done

# Written by others: indented, other members behind, a mark in front, carriage returns.
printf '\357\273\277{\r\n  "format": "hecate-trace",\r\n  "version": 1, "layers": 1,\n\t"experts": 2, "top_k": 1\n  ,\n  "iterations" : [\n    {\n      "iter": 3,\n      "layers": [\n        [1, 2]\n      ]\n    } ,\n {"iter":4,"layers":[[3,4]]}\n  ],\n  "behind": {"x": 1}\n}\n' >pretty.json
convert pretty.json --out p.jsonl
has 'left out  members behind "iterations"'
printf '{"format": "hecate-trace","version": 1, "layers": 1,"experts": 2, "top_k": 1}\n{"iter": 3,"layers": [[1, 2]]}\n{"iter":4,"layers":[[3,4]]}\n' | cmp - p.jsonl || fail "pretty: $(cat p.jsonl)"
convert p.jsonl --out p2.jsonl --form json
expect p2.jsonl 'd["iterations"][1]["layers"]' "[[3, 4]]"

refuses 2 "expected a trace (hecate-trace convert --help)"
refuses 2 "expected --out FILE" a.json
refuses 2 "--form: expected one of jsonl, json, found \"xml\"" a.json --out x --form xml
refuses 2 "unexpected argument" a.json b.json --out x
refuses 2 "none: cannot be opened" none --out x
refuses 2 "-: expected a file that can be read twice" - --out x
cp a.json kept.json
ln -s a.json soft.json
refuses 2 "--out a.json: expected a file that is no input, found the input soft.json itself" soft.json --out a.json
cmp a.json kept.json || fail "an input was written over"
refuses 2 "none/x: expected a file that can be written" a.json --out none/x
head -c -3 odd.jsonl >cut.jsonl
refuses 2 "cut.jsonl:4: " cut.jsonl --out x
head -c -9 d.jsonl.gz >cut.gz
refuses 2 "truncated" cut.gz --out x
sed '3s/4,5, 6/4,5/' odd.jsonl >short.jsonl
refuses 2 "short.jsonl:3: layers[0]: expected 3 counts, found 2" short.jsonl --out x
printf '{"format":"hecate-trace","version":1,"layers":1,"experts":1,"top_k":1,"iter\\u0061tions":[{"iter":0,"layers":[[1]]}]}' >escaped.json
refuses 2 "written plainly" escaped.json --out x
refuses 1 "cannot be written" a.json --out /dev/full
[ ! -e x ] || fail "a refused conversion wrote its output"
[ -z "$(find . -name '*.part')" ] || fail "temporary files are left"
[ $failures -eq 0 ]
