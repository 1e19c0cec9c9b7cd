#!/usr/bin/env bash
# Proves that clients which were made for a real vLLM run against `plimsoll sim` unchanged: the
# `openai` Python package, and vLLM's own `vllm bench serve`.
#
#   tests/sim-clients.sh
#
# PYTHON names an interpreter that has `openai` (default: python3; where it lacks the package, a
# virtual environment with it is made in a temporary folder). VLLM names the `vllm` command; without
# one, or without a TOKENIZER (folder or name of any tokenizer), that half is left out and said so.
# PLIMSOLL names the binary (default: target/release/plimsoll).
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
plimsoll=${PLIMSOLL:-$here/target/release/plimsoll}
[ -x "$plimsoll" ] || { echo "no binary at $plimsoll; build it, or name it in PLIMSOLL" >&2; exit 2; }

work=$(mktemp -d)
server=
cleanup() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    [ -z "$server" ] || wait "$server" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT

"$plimsoll" sim --profile roomy --listen 127.0.0.1:0 >"$work/sim.log" 2>&1 &
server=$!
url=
for _ in $(seq 100); do
    url=$(sed -n 's|.*\(http://127\.0\.0\.1:[0-9]*\).*|\1|p' "$work/sim.log" | head -1)
    [ -z "$url" ] || break
    kill -0 "$server" 2>/dev/null || { cat "$work/sim.log" >&2; exit 1; }
    sleep 0.1
done
[ -n "$url" ] || { echo "the stand-in did not say where it listens" >&2; cat "$work/sim.log" >&2; exit 1; }

python=${PYTHON:-python3}
if ! "$python" -c 'import openai' 2>/dev/null; then
    python3 -m venv "$work/venv"
    python=$work/venv/bin/python
    "$python" -m pip install -q --disable-pip-version-check openai
fi

"$python" - "$url" <<'PY'
import sys
import openai

client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0)
words = [{"role": "user", "content": "import os and count the files"}]
exact = {"min_tokens": 12, "ignore_eos": True}
passed = 0


def check(name, holds, met):
    global passed
    if not holds:
        sys.exit(f"openai {openai.__version__}: {name}: {met!r}")
    passed += 1


models = client.models.list().data
check("models", [m.id for m in models] == ["tiny"] and models[0].max_model_len == 8192, models)

whole = client.chat.completions.create(model="tiny", messages=words, max_tokens=12, extra_body=exact)
check("whole chat", whole.usage.completion_tokens == 12 and whole.usage.prompt_tokens == 16, whole)
check("its end", whole.choices[0].finish_reason == "length", whole)
check("its words", len(whole.choices[0].message.content.split()) == 12, whole)

chunks = list(client.chat.completions.create(model="tiny", messages=words, max_tokens=12, stream=True,
                                             stream_options={"include_usage": True}, extra_body=exact))
check("the role comes first", chunks[0].choices[0].delta.role == "assistant", chunks[0])
text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
check("streamed words", len(text.split()) == 12, text)
check("usage comes last", chunks[-1].usage.completion_tokens == 12 and chunks[-1].choices == [], chunks[-1])

several = client.chat.completions.create(model="tiny", messages=words, n=3, max_tokens=4)
check("n", [c.index for c in several.choices] == [0, 1, 2], several)

tool = {"type": "function", "function": {"name": "count", "parameters": {"type": "object", "properties": {}}}}
called = client.chat.completions.create(model="tiny", messages=words, tools=[tool], max_tokens=8,
                                        tool_choice={"type": "function", "function": {"name": "count"}})
check("a tool call", called.choices[0].message.tool_calls[0].function.name == "count", called)

plain = client.completions.create(model="tiny", prompt=["a b c", "d e"], max_tokens=6, extra_body={"ignore_eos": True})
check("text for two prompts", [len(c.text.split()) for c in plain.choices] == [6, 6], plain)
parts = list(client.completions.create(model="tiny", prompt="a b c", max_tokens=6, stream=True,
                                       extra_body={"ignore_eos": True}))
check("streamed text", len("".join(p.choices[0].text for p in parts if p.choices).split()) == 6, parts)

for name, error, call in [
    ("no such model", openai.NotFoundError, {"model": "nope", "messages": words}),
    ("an answer too long", openai.BadRequestError, {"model": "tiny", "messages": words, "max_tokens": 9000}),
    ("no messages", openai.BadRequestError, {"model": "tiny", "messages": "none"}),
]:
    try:
        client.chat.completions.create(**call)
        sys.exit(f"openai {openai.__version__}: {name} was accepted")
    except error as refused:
        check(name, refused.body and refused.body.get("code") == refused.status_code, refused.body)
print(f"openai {openai.__version__}: {passed} checks hold")
PY

if [ -z "${VLLM:-}" ] || [ -z "${TOKENIZER:-}" ]; then
    echo "vllm bench serve: left out (VLLM and TOKENIZER name the command and a tokenizer)"
    exit 0
fi
for backend in "openai-chat /v1/chat/completions" "vllm /v1/completions"; do
    read -r name endpoint <<<"$backend"
    "$VLLM" bench serve --backend "$name" --base-url "$url" --endpoint "$endpoint" --model "$TOKENIZER" \
        --served-model-name tiny --dataset-name random --random-input-len 64 --random-output-len 16 \
        --num-prompts 40 --max-concurrency 8 --ignore-eos --percentile-metrics ttft,tpot,itl,e2el \
        --save-result --result-dir "$work" --result-filename "$name.json" >"$work/$name.log" 2>&1 ||
        { tail -40 "$work/$name.log" >&2; exit 1; }
    "$python" - "$work/$name.json" "$name" <<'PY'
import json, sys

result = json.load(open(sys.argv[1]))
expected = {"completed": 40, "failed": 0, "total_output_tokens": 640}
wrong = {k: result.get(k) for k, v in expected.items() if result.get(k) != v}
if wrong:
    sys.exit(f"vllm bench serve, {sys.argv[2]}: {wrong}, expected {expected}")
print(f"vllm bench serve, {sys.argv[2]}: 40 requests, 640 tokens, median TTFT {result['median_ttft_ms']:.1f} ms,"
      f" median ITL {result['median_itl_ms']:.2f} ms")
PY
done
