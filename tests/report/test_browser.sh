#!/bin/bash
# The pages in a real browser: Debian's chromium and chromium-driver, headless. Skipped, with the reason, where they are
# not.
source "$(dirname "$0")/../support/tool.sh"
for need in chromium chromedriver python3; do
  command -v $need >/dev/null || { echo "SKIPPED report.browser: no $need"; exit 77; }
done
cat >probe.py <<'END'
from browser import Browser
Browser().close()
END
PYTHONPATH=$source_dir/tests/report PYTHONDONTWRITEBYTECODE=1 timeout 300 python3 probe.py >probe.txt 2>&1 ||
  { echo "SKIPPED report.browser: chromium does not start here: $(tail -1 probe.txt)"; exit 77; }
head -n 7 "$sample" >few.jsonl
"$build/hecate-sim" few.jsonl --out comparison >out.txt 2>&1 || fail "$(cat out.txt)"
sed 's/^{/{"schedule": "published", /; s/"sample-synthetic.jsonl"/"few.jsonl"/' "$source_dir/traces/sample-sweep.json" >spec.json
"$build/hecate-sim" sweep spec.json --report sweep.html >out.txt 2>&1 || fail "$(cat out.txt)"
"$build/program_page" validation.html || fail "no page of a validation"
PYTHONPATH=$source_dir/tests/report PYTHONDONTWRITEBYTECODE=1 TMPDIR=$work timeout 300 python3 \
  "$source_dir/tests/report/browser_check.py" comparison/report.html sweep.html validation.html >out.txt 2>&1 ||
  fail "$(cat out.txt)"
[ $failures -eq 0 ]
