/* A library that answers like libnvidia-ml, for tests.
 *
 * Its state is the file `state.txt` beside the library (or the one that MOCK_NVML_STATE names): lines
 * "key value", read again on every call, so that a test changes temperatures or takes a GPU away while the
 * program runs.
 *   power_mw 300000        a value for every device; a key that is absent has a default
 *   1.power_mw 300000      a value for the device in slot 1 alone, which goes first
 *   temp err 3             the call returns NVML's code 3 (not supported)
 *   1.all err 15           every call on slot 1 returns code 15 (GPU is lost)
 *   count 2                devices that are enumerated
 *   index0 1               slot of the device that has index 0: indices are given out anew, slots stay
 *   0.uuid GPU-abc         texts: uuid, name, bus; of slice 1 of slot 0: 0.mig1.uuid
 * Each call on a device is noted in `calls.txt` beside the state, as "function slot".
 *
 * build: cc -shared -fPIC -O1 -o libmock-nvml.so mock.c   (-DOLD leaves out what old drivers lack)
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int ret;
typedef void *dev;
typedef unsigned int u32;
typedef unsigned long long u64;
enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, SMALL = 7, TIMEOUT = 10 };
enum { SLICE = 1000 };

static void beside(const char *name, char *out, size_t n)
{
    Dl_info info;
    const char *state = getenv("MOCK_NVML_STATE");
    const char *at = state;
    if (!at) at = dladdr((void *)beside, &info) ? info.dli_fname : "";
    if (state && !strcmp(name, "state.txt")) { snprintf(out, n, "%s", state); return; }
    const char *slash = strrchr(at, '/');
    snprintf(out, n, "%.*s%s", slash ? (int)(slash - at + 1) : 0, at, name);
}

/* The text of a key; returns 0 if it is there. "err N" leaves the code in *code. */
static int text(const char *key, char *out, size_t n, int *code)
{
    char path[4096], line[256], k[128], v[128];
    int found = 0;
    beside("state.txt", path, sizeof path);
    FILE *f = fopen(path, "r");
    *code = OK;
    if (!f) return 1;
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%127s %127[^\n]", k, v) != 2 || strcmp(k, key)) continue;
        found = 1;
        *code = OK;
        if (sscanf(v, "err %d", code) != 1) snprintf(out, n, "%s", v);
    }
    fclose(f);
    return !found;
}

static ret global(const char *key, u64 def, u64 *out)
{
    char v[128];
    int code;
    *out = def;
    if (text(key, v, sizeof v, &code)) return OK;
    if (code) return code;
    *out = strtoull(v, NULL, 0);
    return OK;
}

static int slot(dev d) { return (int)((size_t)d - 1) % SLICE; }
static int slice(dev d) { return (int)((size_t)d - 1) / SLICE - 1; }

/* The key of one device: "slot.key" or "slot.migN.key", then the plain key. */
static ret said(dev d, const char *call, const char *key, char *out, size_t n, int *there)
{
    char k[160], path[4096];
    int code;
    beside("calls.txt", path, sizeof path);
    FILE *f = fopen(path, "a");
    if (f) { fprintf(f, "%s %d\n", call, slot(d)); fclose(f); }
    *there = 1;
    snprintf(k, sizeof k, "%d.all", slot(d));
    if (!text(k, out, n, &code) && code) return code;
    if (slice(d) >= 0) snprintf(k, sizeof k, "%d.mig%d.%s", slot(d), slice(d), key);
    else snprintf(k, sizeof k, "%d.%s", slot(d), key);
    if (!text(k, out, n, &code)) return code;
    if (slice(d) < 0 && !text(key, out, n, &code)) return code;
    *there = 0;
    return OK;
}

static ret val(dev d, const char *call, const char *key, u64 def, u64 *out)
{
    char v[128];
    int there;
    ret r = said(d, call, key, v, sizeof v, &there);
    *out = there && !r ? strtoull(v, NULL, 0) : def;
    return r;
}

static ret get32(dev d, const char *call, const char *key, u64 def, u32 *out)
{
    u64 v;
    ret r = val(d, call, key, def, &v);
    *out = (u32)v;
    return r;
}

static ret word(dev d, const char *call, const char *key, const char *def, char *out, u32 n)
{
    int there;
    char v[128];
    ret r = said(d, call, key, v, sizeof v, &there);
    if (!r) snprintf(out, n, "%s", there ? v : def);
    return r;
}

ret nvmlInit_v2(void) { u64 v; return global("init", 0, &v); }
ret nvmlInitWithFlags(u32 f) { (void)f; return nvmlInit_v2(); }
ret nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(ret r) { (void)r; return "mock"; }

ret nvmlSystemGetDriverVersion(char *s, u32 n)
{
    int code;
    char v[128];
    if (text("driver", v, sizeof v, &code)) snprintf(v, sizeof v, "570.00.mock");
    if (!code) snprintf(s, n, "%s", v);
    return code;
}

ret nvmlDeviceGetCount_v2(u32 *n) { u64 v; ret r = global("count", 1, &v); *n = (u32)v; return r; }

ret nvmlDeviceGetHandleByIndex_v2(u32 i, dev *d)
{
    u64 n, at;
    char key[32];
    global("count", 1, &n);
    if (i >= n) return INVALID;
    snprintf(key, sizeof key, "index%u", i);
    ret r = global(key, i, &at);
    *d = (dev)(size_t)(at + 1);
    return r;
}

ret nvmlDeviceGetName(dev d, char *s, u32 n) { return word(d, __func__, "name", "Mock H200", s, n); }

ret nvmlDeviceGetUUID(dev d, char *s, u32 n)
{
    char def[64];
    if (slice(d) >= 0) snprintf(def, sizeof def, "MIG-mock-%d-%d", slot(d), slice(d));
    else snprintf(def, sizeof def, "GPU-mock-%d", slot(d));
    return word(d, __func__, "uuid", def, s, n);
}

struct pci { char legacy[16]; u32 domain, bus, device, id, subsystem; char bus_id[32]; };
ret nvmlDeviceGetPciInfo_v3(dev d, struct pci *p)
{
    char def[32];
    memset(p, 0, sizeof *p);
    snprintf(def, sizeof def, "00000000:%02X:00.0", 0x5d + slot(d));
    return word(d, __func__, "bus", def, p->bus_id, sizeof p->bus_id);
}

ret nvmlDeviceGetClockInfo(dev d, int t, u32 *v)
{
    if (t == 2) return get32(d, "nvmlDeviceGetClockInfo(MEM)", "clock_mem", 3201, v);
    return get32(d, "nvmlDeviceGetClockInfo(SM)", "clock_sm", 1980, v);
}
ret nvmlDeviceGetMaxClockInfo(dev d, int t, u32 *v)
{ return get32(d, __func__, t == 2 ? "max_clock_mem" : "max_clock_sm", t == 2 ? 3201 : 1980, v); }
ret nvmlDeviceGetTemperature(dev d, int s, u32 *v) { (void)s; return get32(d, __func__, "temp", 41, v); }

ret nvmlDeviceGetTemperatureThreshold(dev d, int k, u32 *v)
{
    static const char *n[] = {"thr_shutdown", "thr_slowdown", "thr_mem_max", "thr_gpu_max"};
    static const u32 def[] = {92, 89, 95, 87};
    return k < 4 ? get32(d, __func__, n[k], def[k], v) : NOT_SUPPORTED;
}

ret nvmlDeviceGetPowerUsage(dev d, u32 *v) { return get32(d, __func__, "power_mw", 120000, v); }
ret nvmlDeviceGetEnforcedPowerLimit(dev d, u32 *v) { return get32(d, __func__, "limit_mw", 700000, v); }
ret nvmlDeviceGetTotalEnergyConsumption(dev d, u64 *v) { return val(d, __func__, "energy_mj", 5000000, v); }

ret nvmlDeviceGetUtilizationRates(dev d, u32 v[2])
{
    ret r = get32(d, __func__, "util_gpu", 97, &v[0]);
    return r ? r : get32(d, "-", "util_mem", 40, &v[1]);
}

#ifndef OLD
struct mem2 { u32 version; u64 total, reserved, free, used; };
ret nvmlDeviceGetMemoryInfo_v2(dev d, struct mem2 *m)
{
    int small = slice(d) >= 0;
    ret r = val(d, __func__, "mem_used", small ? 1ULL << 34 : 140000000000ULL, &m->used);
    if (r) return r;
    val(d, "-", "mem_total", small ? 1ULL << 35 : 150754820096ULL, &m->total);
    val(d, "-", "mem_reserved", 0, &m->reserved);
    m->free = m->total - m->used - m->reserved;
    return OK;
}

struct proc { u32 pid; u64 used; u32 gi, ci; };
ret nvmlDeviceGetComputeRunningProcesses_v3(dev d, u32 *n, struct proc *p)
{
    u32 want, first, room = *n;
    u64 used;
    char key[32];
    ret r = get32(d, p ? "nvmlDeviceGetComputeRunningProcesses_v3" : "-", "procs", 1, &want);
    if (r) return r;
    get32(d, "-", "first_pid", 1000, &first);
    *n = want;
    if (!p || room < want) return want ? SMALL : OK;
    for (u32 i = 0; i < want; i++) {
        snprintf(key, sizeof key, "pid%u_bytes", first + i);
        val(d, "-", key, 1ULL << 30, &used);
        p[i] = (struct proc){first + i, used, ~0u, ~0u};
    }
    return OK;
}
#endif

/* Per process: "sm1001 40" is 40 % for pid 1001 at time "sm_time" in microseconds. */
struct share { u32 pid; u64 stamp; u32 sm, mem, enc, dec; };
ret nvmlDeviceGetProcessUtilization(dev d, struct share *s, u32 *n, u64 since)
{
    u64 want, first, now, sm;
    char key[32];
    ret r = val(d, s ? __func__ : "-", "procs", 1, &want);
    if (r) return r;
    val(d, "-", "first_pid", 1000, &first);
    r = val(d, "-", "sm_time", 1, &now);
    if (r) return r;
    if (now <= since) return NOT_FOUND;
    *n = (u32)want;
    if (!s) return SMALL;
    for (u32 i = 0; i < want; i++) {
        snprintf(key, sizeof key, "sm%llu", first + i);
        val(d, "-", key, 0, &sm);
        s[i] = (struct share){(u32)first + i, now, (u32)sm, 0, 0, 0};
    }
    return OK;
}

ret nvmlDeviceGetCurrentClocksThrottleReasons(dev d, u64 *v) { return val(d, __func__, "reasons", 0, v); }

struct viol { u64 ref_us, ns; };
ret nvmlDeviceGetViolationStatus(dev d, int p, struct viol *v)
{ v->ref_us = 1; return val(d, __func__, p == 1 ? "viol_thermal_ns" : "viol_power_ns", 0, &v->ns); }

ret nvmlDeviceGetMigMode(dev d, u32 *c, u32 *p)
{ ret r = get32(d, __func__, "mig", 0, c); *p = *c; return r; }
ret nvmlDeviceGetMaxMigDeviceCount(dev d, u32 *n) { return get32(d, __func__, "mig_count", 0, n); }
ret nvmlDeviceGetMigDeviceHandleByIndex(dev d, u32 i, dev *out)
{
    char key[32];
    u64 v;
    snprintf(key, sizeof key, "mig%u", i);
    *out = (dev)(size_t)(slot(d) + 1 + SLICE * (i + 1));
    return val(d, __func__, key, 0, &v);
}

ret nvmlDeviceGetTotalEccErrors(dev d, int t, int c, u64 *v)
{ (void)c; return val(d, __func__, t ? "ecc_dbe" : "ecc_sbe", 0, v); }
ret nvmlDeviceGetFanSpeed_v2(dev d, u32 fan, u32 *v)
{ u64 n; (void)fan; ret r = val(d, __func__, "fan", 0, &n); *v = (u32)n; return r ? r : n ? OK : NOT_SUPPORTED; }

struct field { u32 id, scope; long long stamp, latency; u32 type, status; union { double d; u64 u; } value; };
ret nvmlDeviceGetFieldValues(dev d, int n, struct field *f)
{
    for (int i = 0; i < n; i++) {
        u64 v;
        f[i].type = 1;
        f[i].status = f[i].id == 82 ? val(d, __func__, "temp_mem", 62, &v) : NOT_SUPPORTED;
        f[i].value.u = f[i].status ? 0 : (u32)v;
    }
    return OK;
}

/* Events: the key "xid" holds a code, "xid_seq" says how often one has come up. */
struct set { dev device; u64 seen; };
struct event { dev device; u64 type, data; u32 gi, ci; };
ret nvmlEventSetCreate(struct set **s) { *s = calloc(1, sizeof **s); return OK; }
ret nvmlEventSetFree(struct set *s) { free(s); return OK; }
ret nvmlDeviceRegisterEvents(dev d, u64 types, struct set *s)
{ (void)types; s->device = d; return val(d, __func__, "xid_seq", 0, &s->seen); }
ret nvmlEventSetWait_v2(struct set *s, struct event *e, u32 ms)
{
    u64 seq, code;
    (void)ms;
    ret r = val(s->device, __func__, "xid_seq", 0, &seq);
    if (r) return r;
    if (seq == s->seen) return TIMEOUT;
    s->seen = seq;
    val(s->device, "-", "xid", 13, &code);
    *e = (struct event){s->device, 8, code, ~0u, ~0u};
    return OK;
}
