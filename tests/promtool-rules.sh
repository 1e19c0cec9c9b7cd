#!/usr/bin/env bash
# Proves with a real promtool that the rules which judge can be deployed, and that their alerts fire when
# plimsoll says they do.
#
#   tests/promtool-rules.sh RESULT_DIR...
#
# `promtool check rules` on the shipped rules and on those of every RESULT_DIR, and `promtool test rules` on
# the test that `plimsoll rules --tests` makes of its recorded series: at each turn of an alert what fires, with
# labels and annotations, at the evaluation before that what does not, and when it began to be pending.
# The same with the rule files of tests/rules_cases/public over the first RESULT_DIR. That a test can fail is
# tried too: it must not pass with longer `for`s.
#
# PROMTOOL names the binary. Without it `promtool` is taken from the PATH; where it is missing, the Debian
# packages `prometheus` and `promtool` are unpacked into a temporary folder (tests/prometheus.sh), so that no service is
# installed or started. For another version of Prometheus unpack that one, and name it in PROMTOOL.
# PLIMSOLL names the binary (default: target/release/plimsoll).
set -euo pipefail

[ $# -gt 0 ] || { echo "usage: $0 RESULT_DIR..." >&2; exit 2; }
here=$(cd "$(dirname "$0")/.." && pwd)
plimsoll=${PLIMSOLL:-$here/target/release/plimsoll}
[ -x "$plimsoll" ] || { echo "no binary at $plimsoll; build it, or name it in PLIMSOLL" >&2; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

promtool=${PROMTOOL:-promtool}
if [ -z "${PROMTOOL:-}" ]; then
    . "$here/tests/prometheus.sh"
    prometheus_onto_path "$work/packages"
fi
"$promtool" --version 2>&1 | head -1

"$plimsoll" rules >"$work/shipped.yml"
"$promtool" check rules "$work/shipped.yml"
"$plimsoll" rules --slo ttft:p99:250ms,itl:p99:40ms,error_rate:2% >"$work/limits.yml"
grep -q '> 0\.25"$' "$work/limits.yml" || { echo "the limit of --slo is not in the printed rules" >&2; exit 1; }
"$promtool" check rules "$work/limits.yml"

# count PATTERN FILE: how many lines hold it.
count() {
    awk -v pattern="$1" '$0 ~ pattern { n++ } END { print n + 0 }' "$2"
}

# prove NAME RESULT_DIR [--rules FILE]
prove() {
    local folder=$work/$1 dir=$2
    shift
    mkdir "$folder" "$folder/wrong"
    "$plimsoll" rules "$@" >"$folder/rules.yml"
    shift
    "$plimsoll" rules --tests "$dir" "$@" >"$folder/tests.yml"
    echo "$dir $*: $(count '^      - series:' "$folder/tests.yml") series," \
        "$(count 'exp_alerts: \\[\\]' "$folder/tests.yml") checks that nothing fires," \
        "$(count 'exp_labels:' "$folder/tests.yml") alerts that fire," \
        "$(count 'exp_samples:' "$folder/tests.yml") pending"
    grep '^  # ' "$folder/tests.yml"
    "$promtool" check rules "$folder/rules.yml"
    "$promtool" test rules "$folder/tests.yml"

    # Every `for` at an hour: the same test must see it.
    sed 's/^\( *for: \).*/\11h/' "$folder/rules.yml" >"$folder/wrong/rules.yml"
    cp "$folder/tests.yml" "$folder/wrong/tests.yml"
    if grep -q 'exp_samples:' "$folder/tests.yml" &&
        grep -q 'exp_labels:' "$folder/tests.yml" &&
        "$promtool" test rules "$folder/wrong/tests.yml" >"$folder/wrong/log" 2>&1; then
        echo "the test of $dir passes with every \`for\` at 1 h: it proves nothing" >&2
        exit 1
    fi
}

for dir in "$@"; do
    prove "$(basename "$dir")" "$dir"
done
# Rules as users bring them, with the templates and functions that such files use.
for rules in "$here"/tests/rules_cases/public/*.yml; do
    prove "$(basename "$rules" .yml)" "$1" --rules "$rules"
done
echo "all passed"
