#!/usr/bin/env python3
"""A fixture of this folder from a result folder of `plimsoll run` against a real vLLM: two rows a second over the step whose
alert fired, up to a second after it, and the last clean one below.

usage: rows.py PLIMSOLL FOLDER > NAME.csv
"""
import json, os, subprocess, sys

GAUGES = {
    "waiting": "vllm:num_requests_waiting",
    "running": "vllm:num_requests_running",
    "kv": "vllm:kv_cache_usage_perc",
    "wait_deferred": 'sum(vllm:num_requests_waiting_by_reason{reason="deferred"})',
    "preempt": "vllm:num_preemptions_total",
    "prompt_tok": "vllm:prompt_tokens_total",
    "gen_tok": "vllm:generation_tokens_total",
    "pc_queries": "vllm:prefix_cache_queries_total",
    "pc_hits": "vllm:prefix_cache_hits_total",
}
TIMES = {
    "ttft": "time_to_first_token",
    "itl": "inter_token_latency",
    "queue": "request_queue_time",
    "prefill": "request_prefill_time",
    "decode": "request_decode_time",
}
EVERY = 0.5


def main(plimsoll, folder):
    verdict = json.load(open(os.path.join(folder, "verdict.json")))
    alert, steps = verdict["first_alert"], verdict["steps"]
    fired = steps[alert["step"]] if alert else steps[-1]
    below = [s for s in steps if s["outcome"] == "clean" and s["concurrency"] < fired["concurrency"]]
    chosen = below[-1:] + [fired]
    columns = dict(GAUGES)
    for short, name in TIMES.items():
        columns |= {f"{short}_{part}": f"vllm:{name}_seconds_{part}" for part in ("sum", "count")}
    columns["iter_count"] = "vllm:iteration_tokens_total_count"
    rows = []
    for step in chosen:
        # The warm-up runs at the step's own load, and means over a minute need it.
        begin, end = step["warmup_s"][0], step["measured_s"][1]
        if alert and step is fired:
            end = min(end, alert["fired_at_s"] + 1.0)

        def ask(expr):
            command = [plimsoll, "query", folder, expr, "--range", f"{begin}s..{end}s", "--step", f"{EVERY}s", "--json"]
            return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["data"]["result"]

        values = {}
        for name, expr in columns.items():
            for series in ask(expr):
                values.setdefault(name, dict(series["values"]))
        for series in ask("vllm:inter_token_latency_seconds_bucket"):
            values[f"itl_le_{series['metric']['le']}"] = dict(series["values"])
        for at in sorted(set().union(*values.values())):
            rows.append({"t": f"{at:.3f}", "conc": f"{step['concurrency']:g}"} | {n: v[at] for n, v in values.items() if at in v})
    names = list(dict.fromkeys(name for row in rows for name in row))
    first = float(rows[0]["t"])
    print(",".join(names))
    for row in rows:
        row["t"] = f"{float(row['t']) - first:.3f}"
        print(",".join(str(row.get(name, "")) for name in names))


main(*sys.argv[1:])
