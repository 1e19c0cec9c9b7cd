#!/usr/bin/env bash
# Proves that `plimsoll query` and a real Prometheus give the same numbers for the same recording.
#
#   tests/openmetrics-roundtrip.sh RESULT_DIR
#
# Exports RESULT_DIR as OpenMetrics, makes blocks of it with promtool, serves those with a real
# Prometheus on a loopback port, and compares the answers to the shipped alerts' expressions (and
# a few more) at instants all over the run, to 1e-9. Instants within five minutes of a failed
# scrape are left out: staleness markers cannot be said in OpenMetrics.
#
# Takes `prometheus` and `promtool` from the PATH; where they are missing, unpacks the Debian packages of those names into
# a temporary folder (tests/prometheus.sh), so that no service is installed or started. PLIMSOLL names
# the binary (default: target/release/plimsoll). Needs python3 for the comparison.
set -euo pipefail

dir=${1:?usage: $0 RESULT_DIR}
here=$(cd "$(dirname "$0")/.." && pwd)
plimsoll=${PLIMSOLL:-$here/target/release/plimsoll}
[ -x "$plimsoll" ] || { echo "no binary at $plimsoll; build it, or name it in PLIMSOLL" >&2; exit 2; }

work=$(mktemp -d)
server=
cleanup() {
    if [ -n "$server" ] && kill "$server" 2>/dev/null; then
        # It says that it was ended by us, which is no failure.
        wait "$server" 2>/dev/null || [ $? -ge 128 ] || echo "Prometheus ended badly" >&2
    fi
    rm -rf "$work"
}
trap cleanup EXIT

. "$here/tests/prometheus.sh"
prometheus_onto_path "$work/packages"

"$plimsoll" export openmetrics "$dir" --output "$work/all.om"
echo "exported $(grep -vc '^#' "$work/all.om") samples"
promtool tsdb create-blocks-from openmetrics "$work/all.om" "$work/data" >"$work/promtool.log" 2>&1 ||
    { cat "$work/promtool.log" >&2; exit 1; }

echo 'global: {}' >"$work/prometheus.yml"
prometheus --config.file="$work/prometheus.yml" --storage.tsdb.path="$work/data" \
    --storage.tsdb.retention.time=100y --web.listen-address=127.0.0.1:0 --log.format=logfmt \
    >"$work/prometheus.log" 2>&1 &
server=$!
address=
for _ in $(seq 200); do
    address=$(sed -n 's/.*[Ll]istening on.* address=\(127\.0\.0\.1:[1-9][0-9]*\).*/\1/p' "$work/prometheus.log" | head -1)
    [ -z "$address" ] || break
    kill -0 "$server" 2>/dev/null || { cat "$work/prometheus.log" >&2; exit 1; }
    sleep 0.1
done
[ -n "$address" ] || { echo "Prometheus did not say where it listens" >&2; cat "$work/prometheus.log" >&2; exit 1; }

python3 - "$plimsoll" "$dir" "http://$address" <<'PY'
import json, math, subprocess, sys, time, urllib.error, urllib.parse, urllib.request

plimsoll, folder, server = sys.argv[1:]

EXPRESSIONS = [
    "vllm:num_requests_waiting > 0",
    "vllm:kv_cache_usage_perc > 0.95",
    "rate(vllm:num_preemptions_total[1m]) > 0",
    "histogram_quantile(0.99, sum by (le) (rate(vllm:time_to_first_token_seconds_bucket[5m]))) > 1",
    "histogram_quantile(0.99, sum by (le) (rate(vllm:inter_token_latency_seconds_bucket[5m]))) > 0.1",
    # The same without their limits, so that a quiet run is compared as well.
    "vllm:num_requests_waiting",
    "vllm:num_requests_running",
    "vllm:kv_cache_usage_perc",
    "rate(vllm:num_preemptions_total[1m])",
    "histogram_quantile(0.99, sum by (le) (rate(vllm:time_to_first_token_seconds_bucket[5m])))",
    "histogram_quantile(0.5, sum by (le) (rate(vllm:inter_token_latency_seconds_bucket[1m])))",
    "sum by (engine) (increase(vllm:generation_tokens_total[30s]))",
    "histogram_quantile(0.99, sum by (le) (rate(plimsoll_client_ttft_seconds_bucket[5m])))",
    "histogram_quantile(0.99, sum by (le) (rate(plimsoll_client_gap_seconds_bucket[1m])))",
    "plimsoll_requests_total",
    "max_over_time(vllm:num_requests_waiting[1m]) - min_over_time(vllm:num_requests_waiting[1m])",
    "count({job=\"server\"})",
]


def api(path, **query):
    url = f"{server}{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)["data"]


def ours(expr, at, major):
    command = [plimsoll, "query", folder, expr, "--json", "--prometheus", major]
    if at is not None:
        command += ["--at", f"{at:.3f}s"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["data"]


def rows(data):
    """Label set -> value; a scalar has no labels."""
    if data["resultType"] == "scalar":
        return {(): float(data["result"][1])}
    return {tuple(sorted(r["metric"].items())): float(r["value"][1]) for r in data["result"]}


def same(a, b):
    return a == b or (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)


for attempt in range(100):
    try:
        urllib.request.urlopen(f"{server}/-/ready", timeout=5)
        break
    except (urllib.error.URLError, OSError):
        time.sleep(0.1)

version = api("/api/v1/status/buildinfo")["version"]
major = version.split(".")[0]
start = float(ours("time()", 0, major)["result"][1])
length = float(ours("time()", None, major)["result"][1]) - start
# Never on a whole second: a sample on the edge of a window is where versions differ.
instants = [length * n / 12 // 1 + 0.437 for n in range(1, 12)]
compared = wrong = elements = skipped = 0
for at in instants:
    if ours("count(min_over_time(up[5m]) == 0)", at, major)["result"]:
        skipped += 1
        continue
    for expr in EXPRESSIONS:
        mine = rows(ours(expr, at, major))
        theirs = rows(api("/api/v1/query", query=expr, time=f"{start + at:.3f}"))
        compared += 1
        elements += len(theirs)
        if mine.keys() != theirs.keys():
            wrong += 1
            print(f"DIFFERENT SETS at {at} s: {expr}\n  ours   {sorted(mine)}\n  theirs {sorted(theirs)}")
            continue
        for labels in mine:
            if not same(mine[labels], theirs[labels]):
                wrong += 1
                print(f"DIFFERENT at {at} s: {expr} {dict(labels)}: ours {mine[labels]!r}, theirs {theirs[labels]!r}")

print(f"Prometheus {version}: {compared} queries, {elements} values, {wrong} different"
      f" ({skipped} of {len(instants)} instants left out for failed scrapes)")
sys.exit(1 if wrong or not elements else 0)
PY
