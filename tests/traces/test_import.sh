#!/usr/bin/env bash
# hecate-trace import from outside. Each folder of import/ is a format: files as its recorder would write them, `options`,
# and `expected.jsonl`, counted by hand; then files damaged in one place each: exit 2, one line that names file and field,
# no output, nothing left behind.
# Usage: test_import.sh BUILD_DIR
. "$(dirname "$0")/../support/tool.sh"
tool=("$build/hecate-trace")
fixtures=$source_dir/tests/traces/import
n_damaged=0
instead=() # options in the fixture's stead

# fresh FORMAT: its files alone in ./in, its options in `options`
fresh() {
  rm -rf in
  mkdir in
  format=$1
  cp -r "$fixtures/$format/." in/
  rm -f in/options in/expected.jsonl
  read -ra options <"$fixtures/$format/options"
  [ ${#instead[@]} -eq 0 ] || options=("${instead[@]}")
}

# damage FILE COMMAND 'words of the message': COMMAND changes a copy of FILE, which it gets as $f
damage() {
  local file=$1 command=$2 words=$3
  fresh "$format"
  f=in/$file
  cp "$f" before.bin 2>/dev/null
  eval "$command" || fail "$format: $command: failed"
  if [ -e "$f" ] && cmp -s before.bin "$f" && [ "$command" = "${command#cp}" ]; then fail "$format: $command: changed nothing"; fi
  rm -f o.jsonl*
  refuses 2 "$words" import in --format "$format" "${options[@]}" --out o.jsonl
  grep -q "in/" err.txt || fail "$format: $command: the message names no file: $(cat err.txt)"
  [ -z "$(find . -name 'o.jsonl*')" ] || fail "$format: $command: output was left: $(find . -name 'o.jsonl*')"
  n_damaged=$((n_damaged + 1))
}

n_formats=0
for folder in "$fixtures"/*/; do
  fresh "$(basename "$folder")"
  n_formats=$((n_formats + 1))
  "${tool[@]}" import in "${options[@]}" --name "$format" --out o.jsonl >out.txt 2>err.txt ||
    fail "$format: $(cat err.txt)"
  diff "$folder/expected.jsonl" o.jsonl || fail "$format: other counts"
  [ ! -s err.txt ] || fail "$format: something on stderr: $(cat err.txt)"
  has "from      $format: "
  has "written   o.jsonl"
  "${tool[@]}" info o.jsonl >/dev/null || fail "$format: info refuses what import wrote"
  "${tool[@]}" import in "${options[@]}" --name "$format" --out - 2>err.txt | cmp - o.jsonl || fail "$format: - differs"
  has "written   -" err.txt
  [ -z "$(find . -name '*.part' -o -name '*.spool')" ] || fail "$format: temporary files are left"
done
[ "$n_formats" -eq "$("${tool[@]}" import --list | grep -c '^  [a-z]')" ] || fail "a format has no fixture, or a fixture no format"

for cases in "$source_dir"/tests/traces/import/*.damage; do
  format=$(basename "$cases" .damage)
  n_damaged=0
  . "$cases"
  instead=()
  [ $n_damaged -ge 10 ] || fail "$format: only $n_damaged damaged variants"
done

tool=("$build/hecate-trace" import)
refuses 2 "expected files, a folder or a pattern"
refuses 2 "expected --out FILE" "$fixtures"
refuses 2 "--format: expected one of hecate-trace import --list, found \"x\"" --format x in --out o
refuses 2 "none: cannot be opened" none --out o
refuses 2 "no*ne: cannot be opened: no file is named so" 'no*ne' --out o
refuses 2 "expected --format with standard input" - --out o
refuses 2 "unknown option \"--wrong\"" in --wrong
mkdir empty
refuses 2 "empty: expected files of a format" empty --out o
echo '{"a": 1}' >plain.json
refuses 2 "plain.json: expected a format of hecate-trace import --list" plain.json --out o
printf 'PK\003\004zip' >d.pt
refuses 2 "SGLang's .pt becomes JSON by" d.pt --out o
[ ! -e o ] || fail "a refused import wrote its output"

echo "$n_formats formats"
[ $failures -eq 0 ]
