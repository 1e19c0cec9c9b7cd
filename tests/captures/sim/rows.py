#!/usr/bin/env python3
"""Rows of held-out.csv from result folders of `plimsoll run` against a real vLLM.

usage: rows.py SERVER FOLDER...     SERVER: profile and flags, as given to the real server
"""
import csv, json, os, re, sys

COLUMNS = ("run,server,streams,ramp,warmup,seconds,every,prompt,answer,greedy,running_p50,running_max,waiting_p50,"
           "waiting_max,kv_p50,kv_max,preemptions,hit_rate,tokens_per_s,ttft_p50_ms,gap_p50_ms,ttft_ms,itl_ms,queue_ms").split(",")


def number(text, pattern):
    found = re.search(pattern, text, re.M)
    return float(found.group(1)) if found else None


def rows(server, folder):
    scenario = open(os.path.join(folder, "scenario.toml")).read()
    with open(os.path.join(folder, "run.jsonl")) as file:
        first, second = [s for s in (json.loads(line) for line in file) if "scrape" in s][5:7]
    every = (second["scrape"]["sent_us"] - first["scrape"]["sent_us"]) / 1e6
    for step in csv.DictReader(open(os.path.join(folder, "steps.csv"))):
        begun, measured, ended = (float(step[k]) for k in ("warmup_start_s", "measured_start_s", "measured_end_s"))

        def value(name, factor=1.0, digits=4):
            return "" if step[name] == "" else round(float(step[name]) * factor, digits)

        yield {
            "run": os.path.basename(folder.rstrip("/")),
            "server": server,
            "streams": int(float(step["offered_concurrency"])),
            "ramp": number(scenario, r'^ramp = "([0-9.]+)s"'),
            "warmup": round(measured - begun, 2),
            "seconds": round(ended - measured, 2),
            "every": round(every, 2),
            "prompt": int(number(scenario, r"^input_tokens = (\d+)")),
            "answer": int(number(scenario, r"^output_tokens = (\d+)")),
            "greedy": int(re.search(r"^temperature = 0(\.0)?$", scenario, re.M) is not None),
            "running_p50": value("running_median"),
            "running_max": value("running_max"),
            "waiting_p50": value("waiting_median"),
            "waiting_max": value("waiting_max"),
            "kv_p50": value("kv_cache_usage_median"),
            "kv_max": value("kv_cache_usage_max"),
            "preemptions": value("preemptions"),
            "hit_rate": value("prefix_cache_hit_rate"),
            "tokens_per_s": value("generation_tokens_per_s", 1, 1),
            "ttft_p50_ms": value("ttft_p50_s", 1e3, 2),
            "gap_p50_ms": value("gap_p50_s", 1e3, 3),
            "ttft_ms": value("server_ttft_mean_s", 1e3, 2),
            "itl_ms": value("server_itl_mean_s", 1e3, 3),
            "queue_ms": value("queue_mean_s", 1e3, 2),
        }


out = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
if os.environ.get("HEAD", "1") == "1":
    out.writeheader()
for folder in sys.argv[2:]:
    out.writerows(rows(sys.argv[1], folder))
