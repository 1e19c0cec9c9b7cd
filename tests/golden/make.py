#!/usr/bin/env python3
"""Asks two real Prometheus servers and writes their answers as golden cases.

usage: make.py PROMETHEUS_2.42 PROMETHEUS_3.5 OUT_FOLDER

The arguments are the two server binaries. Debian 12 ships 2.42 and Debian testing 3.5; both can be
unpacked without being installed: `apt-get download prometheus && dpkg -x prometheus_*.deb .`

Each store below is a made-up set of series with one kind of trouble. Each goes to both servers by
remote write (which, unlike OpenMetrics text, carries staleness markers), a case to its own four
hours; then every expression is asked at every instant. Nothing in the answers is computed here.
The servers listen on 127.0.0.1 only and are stopped by their process ids.
"""
import json, math, os, random, socket, struct, subprocess, sys, tempfile, time, urllib.parse, urllib.request

BASE_MS = 1_768_000_000_000 // 14_400_000 * 14_400_000
SPACING_MS = 14_400_000
INSTANTS = [0, 61_000, 120_000, 150_001, 299_999, 300_000, 437_123, 600_000, 905_000]
STALE = "stale"

# ---------------------------------------------------------------- expressions

EXPRESSIONS = [
    # selectors
    'queue', 'queue{engine="0"}', 'queue{engine!="0"}', 'queue{engine=~"0|2"}', 'queue{engine!~"1.*"}',
    'queue{nothing=""}', 'queue{engine=~".+"}', 'queue{engine=~""}', '{__name__=~"queue|cache"}', '{__name__="limit"}',
    'queue offset 1m', 'queue offset -1m', 'queue @ AT(300)', 'queue @ AT(300) offset 30s', 'queue @ start()', 'queue @ end()',
    'sum_over_time(queue[1m] @ AT(240))', 'rate(req_total[1m] offset 45s)', 'absent_one', 'queue offset 6m',
    # rates
    'rate(req_total[1m])', 'rate(req_total[5m])', 'rate(req_total[30s])', 'rate(req_total[47s])', 'irate(req_total[1m])', 'increase(req_total[2m])',
    'increase(req_total[7s])', 'delta(queue[2m])', 'delta(temp[5m])', 'idelta(queue[1m])', 'idelta(temp[5m])', 'deriv(queue[5m])', 'deriv(temp[2m])',
    'predict_linear(queue[5m], 60)', 'predict_linear(temp[2m], -30)', 'resets(req_total[5m])', 'changes(queue[5m])', 'changes(temp[5m])', 'resets(temp[5m])',
    # over time
    'avg_over_time(queue[2m])', 'min_over_time(queue[2m])', 'max_over_time(queue[2m])', 'sum_over_time(temp[2m])', 'avg_over_time(temp[2m])',
    'min_over_time(temp[5m])', 'max_over_time(temp[5m])', 'count_over_time(queue[1m])', 'quantile_over_time(0.9, queue[5m])', 'quantile_over_time(0.5, temp[5m])',
    'quantile_over_time(2, queue[5m])', 'quantile_over_time(-1, queue[1m])', 'stddev_over_time(queue[5m])', 'stdvar_over_time(cache[5m])', 'last_over_time(queue[1m])',
    'present_over_time(queue[30s])', 'absent_over_time(queue[30s])', 'absent_over_time(nothing{a="b",c!="d"}[5m])', 'count_over_time({__name__=~"queue"}[1m])',
    'absent_over_time(queue{engine="7"}[1m])', 'stddev_over_time(temp[3m])',
    # absence
    'absent(queue)', 'absent(queue{engine="7",job=~"x"})', 'absent(nothing{a="b",a="c"})', 'absent(sum(nothing))', 'absent(queue > 1e9)', 'scalar(limit)', 'scalar(queue)', 'vector(1.5)', 'time()', 'vector(time()) - AT(0)',
    # histograms
    'histogram_quantile(0.99, sum by (le) (rate(lat_bucket[5m])))', 'histogram_quantile(0.5, sum by (le, engine) (rate(lat_bucket[1m])))',
    'histogram_quantile(0.9, rate(lat_bucket[2m]))', 'histogram_quantile(0, rate(lat_bucket[5m]))', 'histogram_quantile(1, rate(lat_bucket[5m]))',
    'histogram_quantile(-0.1, lat_bucket)', 'histogram_quantile(1.1, lat_bucket)', 'histogram_quantile(0.9, lat_bucket)', 'histogram_quantile(0.9, queue)',
    'histogram_quantile(scalar(limit) / 100, sum without (engine) (increase(lat_bucket[5m])))', 'rate(lat_sum[5m]) / rate(lat_count[5m])',
    'sum(rate(lat_bucket{le="0.5"}[5m])) / sum(rate(lat_count[5m]))', 'sum by (le) (lat_bucket)',
    'histogram_quantile(0.99, sum by (le) (rate(lat_bucket[5m]))) > 0.5', '1 - sum(rate(lat_bucket{le=~"0.5|0.50"}[2m])) / sum(rate(lat_bucket{le="+Inf"}[2m]))',
    # aggregation
    'sum(queue)', 'sum by (engine) (req_total)', 'sum without (engine, code) (req_total)', 'avg(queue)', 'avg by (code) (req_total)', 'min(temp)', 'max(temp)', 'count(queue)', 'count by (job) (queue)',
    'group by (job, engine) (req_total)', 'stddev(queue)', 'stdvar by (job) (req_total)', 'topk(2, req_total)', 'bottomk(1, cache)', 'topk(1, cache) by (engine)', 'bottomk by (job) (2, req_total)',
    'topk(0, queue)', 'quantile(0.9, req_total)', 'quantile(0.5, queue)', 'quantile by (engine) (0.3, req_total)', 'quantile(1.5, queue)', 'count_values("v", queue)', 'count_values by (job) ("v", cache)',
    'count_values without (engine) ("v", cache * 1e21)', 'sum by (nothing) (queue)', 'sum(nothing)', 'count(nothing) or vector(0)', 'sum by (__name__) ({__name__=~"queue|cache|limit"})', 'sum without (le) (lat_bucket)',
    'max by (engine) (rate(req_total[1m])) > 0', 'sum(temp)', 'avg(temp)', 'stddev(temp)', 'topk(3, temp)', 'bottomk(3, temp)', 'max without () (queue)', 'count_values("v", temp)', 'quantile(0.5, temp)',
    # arithmetic and comparison with numbers
    'queue + 1', '1 - cache', 'queue * 2 ^ 3', 'queue % 3', 'temp % -7', 'queue / 0', '0 / queue', '-queue', '-queue ^ 2', '2 ^ 3 ^ 2 - queue', 'temp atan2 2', 'queue > 3', '3 < queue', 'queue >= bool 3', 'queue == 0', 'queue != bool 0',
    '1 > bool 2', '(1 > bool 2) + 3', 'temp > 0', 'temp == temp', 'temp != bool temp', 'queue <= 4', 'cache < 0.5', '-1 ^ 2', '5 % 3 - -2', '1 / 0 - 1 / 0', 'NaN == bool NaN', 'Inf > bool 1',
    # joins
    'queue + cache', 'queue / on (engine) limit', 'queue * on (engine) limit', 'req_total / ignoring (code) group_left sum without (code) (req_total)', 'queue * on (job, instance) group_left (version) build_info', 'build_info * on (job, instance) group_right (model) queue',
    'req_total * on (engine) group_left limit', 'limit * on (engine) group_right req_total', 'queue > on (engine) limit', 'queue > bool on (engine) limit', 'queue == queue', 'queue - queue offset 1m', 'req_total + queue', 'req_total * on (engine) queue',
    'req_total - ignoring (code) req_total', 'sum by (engine) (req_total) > on (engine) 10 * limit', 'queue * on () group_left sum(limit)', 'queue + on (engine, job) cache', 'queue > cache', 'cache < ignoring (engine) group_left limit{engine="0"}',
    'rate(req_total{code="500"}[5m]) / ignoring (code) rate(req_total{code="200"}[5m])', 'sum(rate(req_total{code!="200"}[5m])) / sum(rate(req_total[5m])) > 0.01', 'queue * on (engine, nothing) group_left (model) build_info',
    'build_info * on (instance, job) group_right (engine) limit', 'limit * on (__name__) limit', 'queue ^ ignoring (x) cache', 'queue atan2 cache',
    # sets
    'queue and cache > 0.5', 'queue > 2 and on (engine) cache < 0.9', 'queue unless on (engine) limit > 50', 'queue or cache', 'nothing or queue', 'alias_a or alias_b', 'queue or on (engine) cache', 'queue and on () vector(1)', 'queue unless queue > 3',
    'queue and nothing', 'queue unless nothing', 'queue or ignoring (engine) cache', 'queue > 1 or cache > 0.5 and limit > 10', '(queue > 0) and ignoring (__name__) (cache > 0.2)', 'alias_a * 2 or alias_b * 3', 'on_call or vector(7)', 'vector(1) and on () (queue > 3)',
    'queue or on () cache', 'queue and on (job) build_info{version="1"}',
    # functions of vectors
    'abs(temp)', 'ceil(cache * 10)', 'floor(temp)', 'round(temp)', 'round(temp, 0.5)', 'round(cache, 0.1)', 'round(temp, 0)', 'clamp(temp, -5, 5)', 'clamp(temp, 5, -5)', 'clamp_min(temp, 0)', 'clamp_max(temp, 0)', 'sgn(temp)', 'sqrt(queue)', 'exp(cache)', 'ln(queue)', 'log2(queue + 1)', 'log10(req_total)',
    'clamp_min(temp, NaN)', 'clamp(temp, NaN, 1)', 'sin(cache)', 'cos(cache)', 'tan(cache)', 'asin(cache)', 'acos(cache)', 'atan(cache)', 'sinh(cache)', 'cosh(cache)', 'tanh(cache)', 'asinh(cache)', 'acosh(1 + cache)', 'atanh(cache)', 'deg(cache)', 'rad(temp)', 'pi()', 'timestamp(queue)', 'timestamp(queue * 1)', 'timestamp(queue offset 30s)', 'timestamp(vector(1))',
    'hour()', 'minute()', 'day_of_week()', 'day_of_month()', 'day_of_year()', 'days_in_month()', 'month()', 'year()', 'hour(queue * 3600)', 'day_of_week(vector(time()))', 'year((abs(temp) < 100) * 1e9)', 'minute(abs(temp) < 100)',
    'sort(queue)', 'sort_desc(queue)',
    # labels
    'label_replace(queue, "num", "e-$1", "engine", "(.*)")', 'label_replace(queue, "engine", "", "engine", ".*")', 'label_replace(queue, "x", "${a}-$2-$$", "instance", "(?P<a>[a-z]+):(.*)")', 'label_replace(queue, "x", "y", "nothing", "")', 'label_replace(queue, "x", "y", "engine", "9")',
    'label_replace(queue, "__name__", "new_$1", "engine", "(.+)")', 'label_join(queue, "both", "-", "job", "engine")', 'label_join(queue, "both", "", "nothing", "engine", "job")', 'label_join(queue, "engine", ",", "nothing")', 'label_replace(req_total, "code", "x", "code", ".*")',
    'sum by (k) (label_replace(req_total, "k", "$1xx", "code", "(.).*"))', 'label_join(queue, "job", "/")', 'rate(label_gone[1m])', 'label_replace(rate(req_total[5m]), "kind", "$1", "code", "([0-9])..")',
    # subqueries
    'max_over_time(rate(req_total[1m])[5m:30s])', 'avg_over_time(queue[5m:1m])', 'sum_over_time((queue > bool 2)[4m:15s])', 'rate(req_total[5m:20s])', 'count_over_time(queue[3m:])', 'max_over_time(queue[2m:30s] offset 1m)', 'min_over_time((queue - cache)[2m:7s])', 'last_over_time(queue[5m:1m] @ AT(400))', 'quantile_over_time(0.5, sum(queue)[5m:30s])',
    'avg_over_time((sum by (engine) (rate(req_total[1m])))[5m:1m])', 'max_over_time(deriv(queue[1m])[3m:30s])', 'absent_over_time(queue[1m:10s])', 'sum_over_time(vector(1)[1m:10s])', 'stddev_over_time(max_over_time(queue[1m])[3m:1m])', 'count_over_time((queue @ AT(100))[2m:30s])', 'deriv(queue[5m:30s])', 'changes((queue > 2)[5m:15s])', 'present_over_time(vector(1)[30s:30s])', 'count_over_time({__name__=~"queue|cache"}[2m:30s])',
    # what rule files do
    'avg_over_time(queue[1m]) > 5 and on (engine) cache < 0.9', 'sum(increase(req_total[5m])) == 0', 'min_over_time(cache[1m]) > 0.5', '(sum(rate(req_total{code=~"5.."}[5m])) or vector(0)) / clamp_min(sum(rate(req_total[5m])), 1)', 'max by (instance) (queue) / scalar(sum(limit))', 'changes(build_info[5m]) > 0', 'up == 0 or absent(up)', '100 * (1 - avg by (instance) (cache))', 'sum by (engine) (queue) > 2 * sum by (engine) (limit) / 10', 'increase(req_total{code="500"}[5m]) > 0 and rate(req_total{code="500"}[1m]) > 0', 'delta(temp[5m]) < -1 unless on (gpu) temp > 80', 'quantile_over_time(0.95, cache[5m]) - avg_over_time(cache[5m])', 'count(queue > 0) / count(queue)', 'topk(1, sum by (engine) (rate(req_total[2m])))', 'sum(rate(lat_sum[5m])) / sum(rate(lat_count[5m])) > bool 0.3',
]

# ---------------------------------------------------------------- stores


def clock(rng, every_ms, until_ms=900_000, jitter_ms=0, gaps=()):
    ticks = range(0, until_ms + 1, every_ms)
    out = []
    for t in ticks:
        if any(a <= t < b for a, b in gaps):
            continue
        out.append(t + (rng.randrange(jitter_ms) if jitter_ms else 0))
    return out


class Store:
    def __init__(self, name, why, seed, every_ms=15_000, engines=2, **kw):
        self.name, self.why, self.rng = name, why, random.Random(seed)
        self.kw, self.engines = kw, engines
        self.clock = clock(self.rng, every_ms, jitter_ms=kw.get("jitter_ms", 0), gaps=kw.get("gaps", ()))
        self.series = []
        instances = kw.get("instances", [("serve", "alpha:8000")])
        for job, instance in instances:
            at = {"job": job, "instance": instance}
            for e in range(engines):
                self.engine(at, str(e))
            self.add("build_info", at, [1] * len(self.clock), version=str(1 + len(instance) % 2), model="m")
            self.add("up", at, [0 if self.rng.random() < 0.05 else 1 for _ in self.clock])
        for e in range(min(engines, 2)):
            self.add("limit", {}, [10 + 50 * e] * len(self.clock), engine=str(e))
        for g in range(2):
            self.temp(str(g))
        if kw.get("alias") == "b":
            self.add("alias_b", {}, self.gauge(5))
        else:
            self.add("alias_a", {}, self.gauge(5))
        if kw.get("stale"):
            self.mark_stale()

    def add(self, name, at, values, **labels):
        self.series.append(({"__name__": name, **at, **labels}, list(values)))

    def gauge(self, top):
        v, out = 0, []
        for _ in self.clock:
            if self.rng.random() < 0.3:
                v = self.rng.randrange(top)
            out.append(v)
        return out

    def counter(self, mean, start=0):
        v, out = start, []
        for i, t in enumerate(self.clock):
            dt = (t - self.clock[i - 1]) / 1000 if i else 0
            v += round(mean * dt * self.rng.choice([0, 0.5, 1, 1.5]))
            if self.rng.random() < self.kw.get("resets", 0):
                v = self.rng.randrange(3)
            out.append(v)
        return out

    def engine(self, at, e):
        rng = self.rng
        if self.kw.get("no_engine_label"):
            e_label = {}
        else:
            e_label = {"engine": e}
        born = self.kw.get("warm", 0)
        self.add("queue", at, self.gauge(8), **e_label)
        self.add("cache", at, [round(rng.random(), 3) for _ in self.clock], **e_label)
        self.add("req_total", at, self.counter(4, born), code="200", **e_label)
        self.add("req_total", at, self.counter(0.05, born), code="500", **e_label)
        if e == "0":
            self.add("req_total", at, self.counter(0.4), code="503", **e_label)
        self.histogram(at, e_label, e)

    def histogram(self, at, e_label, e):
        bounds = [0.05, 0.1, 0.5, 1.0, 5.0]
        spell = self.kw.get("spell", lambda b, e: str(b))
        counts, total, total_sum = [0] * 6, 0, 0.0
        cols, sums = [[] for _ in range(6)], []
        for i, t in enumerate(self.clock):
            dt = (t - self.clock[i - 1]) / 1000 if i else 0
            if self.kw.get("resets") and self.rng.random() < self.kw["resets"]:
                counts, total_sum = [0] * 6, 0.0
            for _ in range(int(dt * self.rng.choice([0, 1, 2]))):
                x = self.rng.expovariate(3 if int(e or 0) == 0 else 1)
                total_sum += x
                b = next((i for i, u in enumerate(bounds) if x <= u), 5)
                counts[b] += 1
            for b in range(6):
                cols[b].append(sum(counts[: b + 1]))
            sums.append(round(total_sum, 6))
        for b, u in enumerate(bounds + [math.inf]):
            if u == math.inf and self.kw.get("no_inf"):
                continue
            le = "+Inf" if u == math.inf else spell(u, e)
            self.add("lat_bucket", at, cols[b], le=le, **e_label)
        self.add("lat_sum", at, sums, **e_label)
        self.add("lat_count", at, cols[5], **e_label)

    def temp(self, gpu):
        out = []
        for _ in self.clock:
            odd = self.rng.random() < self.kw.get("odd", 0)
            out.append(self.rng.choice(["NaN", "+Inf", "-Inf", 0, -0.0]) if odd else round(self.rng.gauss(0, 10), 2))
        self.add("temp", {}, out, gpu=gpu)

    def mark_stale(self):
        # Whole scrapes fail, and single series go away and come back.
        failed = {i for i in range(len(self.clock)) if self.rng.random() < 0.06}
        for _, values in self.series:
            gone = False
            for i in range(len(values)):
                if i in failed:
                    values[i] = STALE
                    continue
                if self.rng.random() < 0.03:
                    gone = not gone
                    if gone:
                        values[i] = STALE
                        continue
                if gone:
                    values[i] = None


def spelling(b, e):
    return str(b) if int(e or 0) % 2 == 0 else ("1" if b == 1.0 else f"{b:.2f}")


STORES = [
    Store("steady", "two engines, nothing special", 1),
    Store("three-engines", "three engines, alias under its other name", 2, engines=3, alias="b"),
    Store("jitter", "scrapes up to 2.9 s late", 3, jitter_ms=2_900),
    Store("gaps", "two stretches without scrapes, one longer than the look-back", 4, gaps=((90_000, 150_000), (200_000, 540_000))),
    Store("resets", "counters restart often", 5, resets=0.08, warm=1000),
    Store("stale", "failed scrapes and vanishing series, with markers", 6, stale=True),
    Store("odd-numbers", "NaN, infinities and negative zero among the values", 7, odd=0.25),
    Store("each-second", "1 s scrapes", 8, every_ms=1_000, engines=1),
    Store("two-instances", "two jobs with two engines each", 9, instances=[("serve", "alpha:8000"), ("batch", "beta:8000")]),
    Store("half-minute", "30 s scrapes: windows with one sample and with two", 10, every_ms=30_000, engines=3),
    Store("bounds", "bucket bounds spelt in two ways, no +Inf bucket", 11, spell=spelling, no_inf=True),
    Store("spelling", "bucket bounds spelt in two ways", 12, spell=spelling, engines=3, warm=77),
    Store("no-engine-label", "an older server: no engine label", 13, engines=1, no_engine_label=True, resets=0.03),
    Store("wild", "jitter, resets, markers and odd numbers together", 14, every_ms=10_000, jitter_ms=1_500, resets=0.05, stale=True, odd=0.1, engines=3),
]

# ---------------------------------------------------------------- remote write


def varint(n):
    out = b""
    while n > 0x7F:
        out += bytes([n & 0x7F | 0x80])
        n >>= 7
    return out + bytes([n])


def field(number, payload):
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def write_request(series, times, base_ms):
    out = b""
    for labels, values in sorted(series, key=lambda s: sorted(s[0].items())):
        body = b"".join(field(1, field(1, n.encode()) + field(2, v.encode())) for n, v in sorted(labels.items()))
        for t, v in zip(times, values):
            if v is None:
                continue
            bits = struct.pack("<Q", 0x7FF0000000000002) if v == STALE else struct.pack("<d", float(v))
            body += field(2, varint(1 << 3 | 1) + bits + varint(2 << 3) + varint(base_ms + t))
        out += field(1, body)
    return out


def snappy(data):
    """A snappy block of literals only: valid, and not compressed."""
    out = varint(len(data))
    for i in range(0, len(data), 65_536):
        chunk = data[i : i + 65_536]
        out += bytes([61 << 2]) + struct.pack("<H", len(chunk) - 1) + chunk
    return out


class Server:
    def __init__(self, binary, folder):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        config = os.path.join(folder, "prometheus.yml")
        open(config, "w").write("global: {evaluation_interval: 1m}\n")
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(
            [binary, f"--config.file={config}", f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}",
             "--web.enable-remote-write-receiver", "--storage.tsdb.retention.time=100y", "--log.level=error"])
        for _ in range(100):
            try:
                urllib.request.urlopen(self.url + "/-/ready").read()
                return
            except OSError:
                time.sleep(0.2)
        raise SystemExit("the server does not start")

    def write(self, body):
        headers = {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf", "X-Prometheus-Remote-Write-Version": "0.1.0"}
        urllib.request.urlopen(urllib.request.Request(self.url + "/api/v1/write", snappy(body), headers)).read()

    def ask(self, expr, t_ms):
        """[(labels, value)] or an error text."""
        form = urllib.parse.urlencode({"query": expr, "time": f"{t_ms / 1000:.3f}"}).encode()
        try:
            answer = json.load(urllib.request.urlopen(self.url + "/api/v1/query", form))
        except urllib.error.HTTPError as e:
            answer = json.load(e)
            if answer["errorType"] == "bad_data":
                raise SystemExit(f"{expr}: {answer['error']}")
            return answer["error"]
        data = answer["data"]
        if data["resultType"] == "scalar":
            return [({}, data["result"][1])]
        return [(r["metric"], r["value"][1]) for r in data["result"]]


def query(server, expr, base_ms):
    """What the golden format calls `results` of one version; an error at any instant is one for all of them."""
    rows, errors = {}, []
    for i, t in enumerate(INSTANTS):
        answer = server.ask(expr, base_ms + t)
        if isinstance(answer, str):
            errors.append((i, answer))
            continue
        for labels, value in answer:
            key = tuple(sorted(labels.items()))
            rows.setdefault(key, [None] * len(INSTANTS))[i] = value
    out = [{"labels": dict(k), "values": v} for k, v in sorted(rows.items())]
    if errors:
        return {"rows": out, "errors": {str(INSTANTS[i]): e for i, e in errors}}
    return out


def main():
    binaries, out = {"2.42": sys.argv[1], "3.5": sys.argv[2]}, sys.argv[3]
    os.makedirs(out, exist_ok=True)
    answers = {}
    for version, binary in binaries.items():
        with tempfile.TemporaryDirectory() as folder:
            server = Server(binary, folder)
            try:
                for n, store in enumerate(STORES):
                    server.write(write_request(store.series, store.clock, BASE_MS + n * SPACING_MS))
                for n, store in enumerate(STORES):
                    base = BASE_MS + n * SPACING_MS
                    for k, expr in enumerate(EXPRESSIONS):
                        # Each expression meets four stores, and each store a quarter of all expressions and more.
                        if (k * 5 + n * 3) % 14 in (0, 4, 7, 11):
                            answers[n, k, version] = query(server, concrete(expr, base), base)
            finally:
                server.process.terminate()
                server.process.wait()
    for n, store in enumerate(STORES):
        save(out, n, store, answers)


def concrete(expr, base_ms):
    """AT(s) stands for a time in seconds from the origin of the case."""
    while "AT(" in expr:
        head, rest = expr.split("AT(", 1)
        s, tail = rest.split(")", 1)
        expr = f"{head}{base_ms / 1000 + float(s):.0f}{tail}"
    return expr


def save(out, n, store, answers):
    base = BASE_MS + n * SPACING_MS
    clocks, series = {"c0": store.clock}, []
    for labels, values in store.series:
        name = "c0"
        if None in values:
            name = f"c{len(clocks)}"
            clocks[name] = [t for t, v in zip(store.clock, values) if v is not None]
            values = [v for v in values if v is not None]
        series.append({"labels": labels, "clock": name, "values": values})
    queries = []
    for k, expr in enumerate(EXPRESSIONS):
        if (n, k, "2.42") in answers:
            a, b = answers[n, k, "2.42"], answers[n, k, "3.5"]
            queries.append({"expr": concrete(expr, base), "results": {"all": a} if a == b else {"2.42": a, "3.5": b}})
    dump = lambda x: json.dumps(x, separators=(",", ":"))
    lines = lambda xs: "[\n" + ",\n".join(map(dump, xs)) + "\n]"
    name = f"m{n + 1:02}-{store.name}"
    text = "{\n" + ",\n".join(
        [f'"format":"vllm-promql-golden/1"', f'"id":{dump(name)}', f'"title":{dump(store.why)}', f'"why":"functions, joins, sets and subqueries"',
         f'"base_ms":{base}', '"lookback_ms":300000', f'"clocks":{dump(clocks)}', f'"series":{lines(series)}',
         f'"instants":{dump(INSTANTS)}', f'"queries":{lines(queries)}', '"alerts":[]']) + "\n}\n"
    open(os.path.join(out, name + ".json"), "w").write(text)
    print(name, len(queries), "expressions", len(text) // 1024, "KiB")


if __name__ == "__main__":
    main()
