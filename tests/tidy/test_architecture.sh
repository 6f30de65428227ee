#!/usr/bin/env bash
# docs/architecture.md and the tables of CONTRIBUTING.md name what is there: files, folders of new files, functions, and the list
# that has a row in the file that is named beside it.
source "$(dirname "$0")/../support/tool.sh"
cd "$source_dir" || exit 1
git ls-files 2>/dev/null >"$work/files.txt" && [ -s "$work/files.txt" ] || find . -type f | sed 's|^\./||' >"$work/files.txt"

# The example pieces of CONTRIBUTING.md are test_example.sh's.
grep -h '^|' docs/architecture.md CONTRIBUTING.md >"$work/rows.txt"
grep -v '^|' docs/architecture.md | sed '/^```/,/^```/d' >>"$work/rows.txt"

n=0
while read -r name; do
  n=$((n + 1))
  case $name in
  *TOOL*) ;;
  hec_* | HEC_*) grep -rqw --include='*.[ch]' -- "$name" models runtime sim traces tools validate || fail "no $name" ;;
  models/*NAME* | runtime/*NAME* | sim/*NAME* | traces/*NAME* | validate/*NAME* | tools/*NAME* | tests/*NAME*)
    [ -d "$(dirname "${name%%NAME*}x")" ] || fail "no folder of $name"
    ;;
  *NAME*) ;;
  *\**) compgen -G "$name" >/dev/null || fail "no file $name" ;;
  */) [ -d "$name" ] || fail "no folder $name" ;;
  *.c | *.h | *.md | *.json | *.py) grep -qE "(^|/)${name//./\\.}\$" "$work/files.txt" || fail "no file $name" ;;
  esac
done < <(grep -oE '`[A-Za-z0-9_./*-]+`' "$work/rows.txt" | tr -d '`' | grep -E '[/_.]' | sort -u)
[ "$n" -ge 60 ] || fail "only $n names"

while read -r list file; do
  grep -q "define $list(X)" "$file" || fail "no $list in $file"
done < <(sed -nE 's/.*`(HEC_[A-Z_]+_LIST)` in `([a-z_/0-9]+\.h)`.*/\1 \2/p' "$work/rows.txt")

[ $failures -eq 0 ] || exit 1
echo "$n names; all are there"
