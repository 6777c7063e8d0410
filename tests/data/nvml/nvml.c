/* A libnvidia-ml.so.1 that answers from a recording: lines of KEY=VALUE, named by NVML_RECORDING.
   `!15` is the NVML error 15, `hang` never answers, what is not recorded is "not supported". */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };
#define MOST 64
static char keys[256][64], values[256][160], names[MOST][32];
static int lines, handles;

static int look_up(const char *device, const char *key, const char **value)
{
    char full[96];
    snprintf(full, sizeof full, "%s%s%s", device, *device ? "." : "", key);
    for (int line = 0; line < lines; line++) {
        if (strcmp(keys[line], full) != 0)
            continue;
        while (strcmp(values[line], "hang") == 0)
            pause();
        *value = values[line];
        return values[line][0] == '!' ? atoi(values[line] + 1) : OK;
    }
    return NOT_SUPPORTED;
}

static int number(const char *device, const char *key, unsigned int *to)
{
    const char *value;
    int code = look_up(device, key, &value);
    if (code == OK)
        *to = (unsigned int)strtoul(value, NULL, 10);
    return code;
}

static int text(const char *device, const char *key, char *to, unsigned int size)
{
    const char *value;
    int code = look_up(device, key, &value);
    if (code == OK)
        snprintf(to, size, "%s", value);
    return code;
}

static int handle(const char *name, void **to)
{
    const char *value;
    int code = look_up(name, "uuid", &value);
    if (code != OK)
        return code == NOT_SUPPORTED ? NOT_FOUND : code;
    snprintf(names[handles % MOST], sizeof names[0], "%s", name);
    *to = names[handles++ % MOST];
    return OK;
}

int nvmlInitWithFlags(unsigned int flags)
{
    char line[256];
    const char *value = "";
    FILE *file = fopen(getenv("NVML_RECORDING"), "r");
    (void)flags;
    if (!file)
        return 9;
    for (lines = 0; lines < 256 && fgets(line, sizeof line, file);) {
        char *equals = strchr(line, '=');
        if (line[0] == '#' || !equals)
            continue;
        *equals = 0;
        line[strcspn(line, "\n")] = 0;
        equals[1 + strcspn(equals + 1, "\n")] = 0;
        snprintf(keys[lines], sizeof keys[0], "%s", line);
        snprintf(values[lines++], sizeof values[0], "%s", equals + 1);
    }
    fclose(file);
    int code = look_up("", "init", &value);
    return code == NOT_SUPPORTED ? OK : code;
}

int nvmlShutdown(void) { return OK; }

const char *nvmlErrorString(int code)
{
    switch (code) {
    case 4: return "Insufficient Permissions";
    case 9: return "Driver Not Loaded";
    case 15: return "GPU is lost";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

int nvmlDeviceGetCount_v2(unsigned int *count) { return number("", "count", count); }

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **to)
{
    char name[32];
    snprintf(name, sizeof name, "gpu%u", index);
    return handle(name, to);
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *gpu, unsigned int index, void **to)
{
    char name[32];
    snprintf(name, sizeof name, "%.20s.mig%u", (char *)gpu, index);
    return handle(name, to);
}

int nvmlDeviceGetMigMode(void *gpu, unsigned int *now, unsigned int *next)
{
    int code = number(gpu, "mig", now);
    *next = *now;
    return code;
}

int nvmlDeviceGetMaxMigDeviceCount(void *gpu, unsigned int *count)
{
    return number(gpu, "slices", count);
}

int nvmlDeviceGetName(void *gpu, char *to, unsigned int size) { return text(gpu, "name", to, size); }
int nvmlDeviceGetUUID(void *gpu, char *to, unsigned int size) { return text(gpu, "uuid", to, size); }

int nvmlDeviceGetMemoryInfo(void *gpu, unsigned long long *memory) /* total, free, used */
{
    const char *value;
    char *rest;
    int code = look_up(gpu, "memory", &value);
    if (code != OK)
        return code;
    memory[0] = strtoull(value, &rest, 10);
    memory[1] = strtoull(rest + 1, NULL, 10);
    memory[2] = memory[0] - memory[1];
    return OK;
}

int nvmlDeviceGetUtilizationRates(void *gpu, unsigned int *rates) /* gpu, memory */
{
    rates[1] = 0;
    return number(gpu, "utilization", rates);
}

struct process {
    unsigned int pid;
    unsigned long long bytes;
    unsigned int gpu_instance, compute_instance;
};

int nvmlDeviceGetComputeRunningProcesses_v3(void *gpu, unsigned int *count, struct process *to)
{
    const char *value; /* PID:BYTES, one or several with a space between */
    unsigned int found = 0, room = *count;
    int code = look_up(gpu, "processes", &value);
    if (code != OK)
        return code;
    for (; *value; value += strcspn(value, " "), value += *value == ' ', found++) {
        struct process one = {0, 0, 0, 0};
        sscanf(value, "%u:%llu", &one.pid, &one.bytes);
        if (found < room)
            to[found] = one;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : OK;
}

int nvmlDeviceGetPowerUsage(void *gpu, unsigned int *milliwatts)
{
    return number(gpu, "milliwatts", milliwatts);
}

int nvmlDeviceGetTemperature(void *gpu, int sensor, unsigned int *celsius)
{
    return sensor == 0 ? number(gpu, "celsius", celsius) : 2;
}

int nvmlDeviceGetClockInfo(void *gpu, int clock, unsigned int *mhz)
{
    return clock == 1 ? number(gpu, "sm_mhz", mhz) : 2;
}
