/* A driver's library without a driver: the part of NVML that ecoshare and zeus call, on a state that tests write.
 *
 * Only symbols that NVIDIA's library has are exported, each behaving as its documentation says; whatever NVML does not
 * tell (the range of locked clocks, say) is not told here either.
 */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "model.h"
#include "nvml.h"

struct memory {
    unsigned long long total, free, used;
};

struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

struct utilization {
    unsigned gpu, memory;
};

struct temperature {
    unsigned version, sensor;
    int celsius;
};

struct process {
    unsigned pid;
    unsigned long long used_bytes;
    unsigned gpu_instance, compute_instance;
};

struct mask255 {
    unsigned mask[MASK_WORDS];
};

struct current_profiles {
    unsigned version;
    struct mask255 supported, requested, enforced;
};

struct requested_profiles {
    unsigned version;
    struct mask255 profiles;
};

struct updated_profiles {
    unsigned operation;
    struct mask255 profiles;
};

struct field {
    unsigned id, scope;
    long long timestamp_us, latency_us;
    unsigned type;
    result_t result;
    union {
        double as_double;
        unsigned as_unsigned;
        unsigned long long as_long;
    } value;
};

enum { GRAPHICS = 0, SM = 1, MEMORY = 2, VIDEO = 3 };
enum { VOLTA = 5, AMPERE = 7 };
enum { ALL_GPU = 0, SCOPE_MEMORY = 2 };
enum { TYPE_UNSIGNED = 1, TYPE_UNSIGNED_LONG_LONG = 3 };
enum { FIELD_ENERGY = 83, FIELD_POWER_AVERAGE = 185, FIELD_POWER_INSTANT = 186 };
enum { CLEAR = 0, ADD = 1, OVERWRITE = 2 };
static const unsigned MEMORY_V2 = 0x02000028, TEMPERATURE_V1 = 0x100000C;
static const unsigned CURRENT_PROFILES_V1 = 0x1000064, REQUESTED_PROFILES_V1 = 0x1000024;

const char handles[GPUS];

int number(device_t device) {
    return device >= handles && device < handles + GPUS ? (int)(device - handles) : GPUS;
}

result_t enter_or_hang(int gpu, const char *function) {
    result_t result = enter(gpu, function);
    while (result == SUCCESS && struck == FAULT_HANG) {
        leave(result);
        usleep(5000);
        result = enter(gpu, function);
    }
    return result;
}

#define GETTER(name, type, expression)                                                                                 \
    API name(device_t device, type *value) {                                                                           \
        ENTER(device);                                                                                                 \
        if (gpu)                                                                                                       \
            *value = (type)(expression);                                                                               \
        return leave(result);                                                                                          \
    }

API nvmlInit_v2(void) { return leave(attach(__func__)); }

API nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    return leave(attach(__func__));
}

API nvmlShutdown(void) { return detach(); }

__attribute__((visibility("default"))) const char *nvmlErrorString(result_t result) {
    switch (result) {
    case SUCCESS:
        return "Success";
    case UNINITIALIZED:
        return "Uninitialized";
    case INVALID_ARGUMENT:
        return "Invalid Argument";
    case NOT_SUPPORTED:
        return "Not Supported";
    case NOT_FOUND:
        return "Not Found";
    case INSUFFICIENT_SIZE:
        return "Insufficient Size";
    case FUNCTION_NOT_FOUND:
        return "Function Not Found";
    case DRIVER_NOT_LOADED:
        return "Driver Not Loaded";
    case LIB_RM_VERSION_MISMATCH:
        return "Driver/library version mismatch";
    case GPU_IS_LOST:
        return "GPU is lost";
    case RESET_REQUIRED:
        return "GPU requires reset";
    case ARGUMENT_VERSION_MISMATCH:
        return "Argument version mismatch";
    default:
        return "Unknown Error";
    }
}

static result_t text(const char *from, char *to, unsigned length) {
    if (strlen(from) >= length)
        return INSUFFICIENT_SIZE;
    strcpy(to, from);
    return SUCCESS;
}

API nvmlSystemGetDriverVersion(char *version, unsigned length) {
    result_t result = enter(NO_GPU, __func__);
    return leave(result == SUCCESS ? text(page->driver_version, version, length) : result);
}

API nvmlSystemGetNVMLVersion(char *version, unsigned length) {
    result_t result = enter(NO_GPU, __func__);
    return leave(result == SUCCESS ? text(page->nvml_version, version, length) : result);
}

API nvmlDeviceGetCount_v2(unsigned *count) {
    result_t result = enter(NO_GPU, __func__);
    if (result == SUCCESS)
        *count = page->gpus;
    return leave(result);
}

API nvmlDeviceGetHandleByIndex_v2(unsigned wanted, device_t *device) {
    result_t result = enter(wanted < GPUS ? (int)wanted : GPUS, __func__);
    if (result == SUCCESS)
        *device = &handles[wanted];
    return leave(result);
}

/* It looks at every GPU, so it fails while any of them is lost, as NVML's documentation says. */
API nvmlDeviceGetHandleByUUID(const char *uuid, device_t *device) {
    result_t result = enter(NO_GPU, __func__);
    for (unsigned i = 0; result == SUCCESS && i < page->gpus; i++)
        if (is_lost((int)i))
            result = GPU_IS_LOST;
    for (unsigned i = 0; result == SUCCESS && i < page->gpus; i++)
        if (strcmp(page->gpu[i].uuid, uuid) == 0) {
            *device = &handles[i];
            return leave(strike((int)i, __func__));
        }
    return leave(result == SUCCESS ? NOT_FOUND : result);
}

GETTER(nvmlDeviceGetIndex, unsigned, index)
GETTER(nvmlDeviceGetComputeMode, unsigned, gpu->compute_mode)
GETTER(nvmlDeviceGetPersistenceMode, unsigned, gpu->persistence)
GETTER(nvmlDeviceGetArchitecture, unsigned, gpu->architecture)
GETTER(nvmlDeviceGetPowerManagementLimit, unsigned, gpu->limit_mw)
GETTER(nvmlDeviceGetEnforcedPowerLimit, unsigned, gpu->limit_mw)
GETTER(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, gpu->default_limit_mw)
GETTER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, operate(gpu).reasons)
GETTER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, operate(gpu).reasons)

API nvmlDeviceGetUUID(device_t device, char *uuid, unsigned length) {
    ENTER(device);
    return leave(gpu ? text(gpu->uuid, uuid, length) : result);
}

// First branches of the driver with their newest versions of CUDA, by NVIDIA's release notes.
static const struct { int branch, cuda; } RUNS[] = {
    {580, 13000}, {570, 12080}, {550, 12040}, {535, 12020}, {525, 12000}, {470, 11040}, {0, 10000},
};

API nvmlSystemGetCudaDriverVersion_v2(int *version) {
    result_t result = enter(NO_GPU, __func__);
    if (result == SUCCESS && !page->tells_cuda)
        return leave(FUNCTION_NOT_FOUND);
    if (result == SUCCESS)
        for (int i = 0, branch = atoi(page->driver_version); i < (int)(sizeof RUNS / sizeof *RUNS); i++)
            if (branch >= RUNS[i].branch) {
                *version = RUNS[i].cuda;
                break;
            }
    return leave(result);
}

API nvmlDeviceGetCudaComputeCapability(device_t device, int *major, int *minor) {
    // By NVML_DEVICE_ARCH_*: Kepler 2, Maxwell 3, Pascal 4, Volta 5, Turing 6, Ampere 7, Ada 8, Hopper 9, Blackwell 10.
    ENTER(device);
    if (gpu) {
        *major = (int)gpu->capability / 10;
        *minor = (int)gpu->capability % 10;
    }
    return leave(result);
}

API nvmlDeviceGetName(device_t device, char *name, unsigned length) {
    ENTER(device);
    return leave(gpu ? text(gpu->name, name, length) : result);
}

static unsigned long long used_bytes(const struct gpu *gpu) {
    unsigned long long sum = 0;
    for (int i = 0; i < LOADS; i++)
        sum += gpu->loads[i].used_bytes;
    unsigned long long most = gpu->memory_bytes - gpu->reserved_bytes;
    return sum < most ? sum : most;
}

/* The first version counts what the driver keeps for itself as used, the second one apart. */
API nvmlDeviceGetMemoryInfo(device_t device, struct memory *memory) {
    ENTER(device);
    if (gpu) {
        memory->total = gpu->memory_bytes;
        memory->used = used_bytes(gpu) + gpu->reserved_bytes;
        memory->free = memory->total - memory->used;
    }
    return leave(result);
}

API nvmlDeviceGetMemoryInfo_v2(device_t device, struct memory_v2 *memory) {
    ENTER(device);
    if (gpu && memory->version != MEMORY_V2)
        return leave(ARGUMENT_VERSION_MISMATCH);
    if (gpu) {
        memory->total = gpu->memory_bytes;
        memory->reserved = gpu->reserved_bytes;
        memory->used = used_bytes(gpu);
        memory->free = memory->total - memory->reserved - memory->used;
    }
    return leave(result);
}

API nvmlDeviceGetMigMode(device_t device, unsigned *current, unsigned *pending) {
    ENTER(device);
    if (gpu && gpu->mig_mode > 1)
        return leave(NOT_SUPPORTED);
    if (gpu)
        *current = *pending = gpu->mig_mode;
    return leave(result);
}

API nvmlDeviceGetC2cModeInfoV(device_t device, void *info) {
    (void)info;
    ENTER(device);
    return leave(gpu ? NOT_SUPPORTED : result);
}

/* From Ampere on an average, before that the draw of the moment. */
API nvmlDeviceGetPowerUsage(device_t device, unsigned *milliwatts) {
    ENTER(device);
    if (gpu)
        *milliwatts = (unsigned)(1000.0 * (gpu->architecture >= AMPERE ? gpu->average_w : operate(gpu).power_w) + 0.5);
    return leave(result);
}

static unsigned long long energy_mj(struct gpu *gpu) {
    if (struck == FAULT_RESET)
        gpu->energy_mj = gpu->published_mj = 0.0;
    if (struck != FAULT_STALE)
        gpu->returned_mj = gpu->published_mj;
    return (unsigned long long)gpu->returned_mj;
}

API nvmlDeviceGetTotalEnergyConsumption(device_t device, unsigned long long *millijoules) {
    ENTER(device);
    if (gpu && gpu->architecture < VOLTA)
        return leave(NOT_SUPPORTED);
    if (gpu)
        *millijoules = energy_mj(gpu);
    return leave(result);
}

static void fill(int index, struct field *field) {
    const char *name = field->id == FIELD_ENERGY          ? "NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
                       : field->id == FIELD_POWER_AVERAGE ? "NVML_FI_DEV_POWER_AVERAGE"
                       : field->id == FIELD_POWER_INSTANT ? "NVML_FI_DEV_POWER_INSTANT"
                                                          : NULL;
    field->result = name == NULL ? NOT_SUPPORTED : strike(index, name);
    if (field->result != SUCCESS)
        return;
    struct gpu *gpu = &page->gpu[index];
    struct point point = operate(gpu);
    if (field->id == FIELD_ENERGY && gpu->architecture < VOLTA) {
        field->result = NOT_SUPPORTED;
        return;
    }
    field->timestamp_us = gpu->until_ns / 1000;
    field->latency_us = 0;
    field->type = field->id == FIELD_ENERGY ? TYPE_UNSIGNED_LONG_LONG : TYPE_UNSIGNED;
    field->value.as_long = 0;
    if (field->id == FIELD_ENERGY)
        field->value.as_long = energy_mj(gpu);
    else if (field->scope == SCOPE_MEMORY)
        field->value.as_unsigned = (unsigned)(1000.0 * point.memory_w + 0.5);
    else if (field->scope != ALL_GPU)
        field->result = NOT_SUPPORTED;
    else
        field->value.as_unsigned =
            (unsigned)(1000.0 * (field->id == FIELD_POWER_AVERAGE ? gpu->average_w : point.power_w) + 0.5);
}

API nvmlDeviceGetFieldValues(device_t device, int count, struct field *fields) {
    ENTER(device);
    for (int i = 0; gpu && i < count; i++)
        fill(index, &fields[i]);
    return leave(result);
}

API nvmlDeviceGetUtilizationRates(device_t device, struct utilization *rates) {
    ENTER(device);
    double compute = 0.0, memory = 0.0;
    for (int i = 0; gpu && i < LOADS; i++) {
        compute += gpu->loads[i].compute;
        memory += gpu->loads[i].memory;
    }
    if (gpu) {
        rates->gpu = compute < 1.0 ? (unsigned)(100.0 * compute + 0.5) : 100;
        rates->memory = memory < 1.0 ? (unsigned)(100.0 * memory + 0.5) : 100;
    }
    return leave(result);
}

API nvmlDeviceGetTemperature(device_t device, unsigned sensor, unsigned *celsius) {
    ENTER(device);
    if (gpu && sensor != 0)
        return leave(INVALID_ARGUMENT);
    if (gpu)
        *celsius = gpu->temperature_c;
    return leave(result);
}

API nvmlDeviceGetTemperatureV(device_t device, struct temperature *temperature) {
    ENTER(device);
    if (gpu && temperature->version != TEMPERATURE_V1)
        return leave(ARGUMENT_VERSION_MISMATCH);
    if (gpu && temperature->sensor != 0)
        return leave(INVALID_ARGUMENT);
    if (gpu)
        temperature->celsius = (int)gpu->temperature_c;
    return leave(result);
}

API nvmlDeviceGetTemperatureThreshold(device_t device, unsigned threshold, unsigned *celsius) {
    ENTER(device);
    if (gpu && threshold != 0) /* only that of the shutdown is told */
        return leave(NOT_SUPPORTED);
    if (gpu)
        *celsius = gpu->shutdown_c;
    return leave(result);
}

/* Uncorrected errors (1) since the driver was loaded (0); this board counts no others. */
API nvmlDeviceGetTotalEccErrors(device_t device, unsigned kind, unsigned counter, unsigned long long *count) {
    ENTER(device);
    if (gpu && (!gpu->has_ecc || kind != 1 || counter != 0))
        return leave(NOT_SUPPORTED);
    if (gpu)
        *count = gpu->ecc_errors;
    return leave(result);
}

API nvmlDeviceGetRemappedRows(device_t device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                              unsigned *failed) {
    ENTER(device);
    if (gpu && (!gpu->has_ecc || gpu->architecture < AMPERE))
        return leave(NOT_SUPPORTED);
    if (gpu) {
        *corrected = *uncorrected = 0;
        *pending = gpu->remapping & 1;
        *failed = gpu->remapping >> 1 & 1;
    }
    return leave(result);
}

static result_t clock_of(unsigned type, unsigned graphics_mhz, unsigned memory_mhz, unsigned *mhz) {
    if (type > VIDEO)
        return INVALID_ARGUMENT;
    *mhz = type == MEMORY ? memory_mhz : graphics_mhz;
    return SUCCESS;
}

API nvmlDeviceGetClockInfo(device_t device, unsigned type, unsigned *mhz) {
    ENTER(device);
    if (!gpu)
        return leave(result);
    struct point point = operate(gpu);
    return leave(clock_of(type, point.graphics_mhz, point.memory_mhz, mhz));
}

/* P8 at rest, and P2 where the board computes below its highest memory clock. */
API nvmlDeviceGetPerformanceState(device_t device, unsigned *state) {
    ENTER(device);
    if (gpu)
        *state = operate(gpu).reasons & IDLE ? 8 : gpu->loaded_memory_mhz ? 2 : 0;
    return leave(result);
}

API nvmlDeviceGetMaxClockInfo(device_t device, unsigned type, unsigned *mhz) {
    ENTER(device);
    return leave(gpu ? clock_of(type, gpu->graphics_clock_mhz[0][0], gpu->memory_clock_mhz[0], mhz) : result);
}

API nvmlDeviceGetApplicationsClock(device_t device, unsigned type, unsigned *mhz) {
    ENTER(device);
    return leave(gpu ? clock_of(type, gpu->application_mhz[0], gpu->application_mhz[1], mhz) : result);
}

API nvmlDeviceGetDefaultApplicationsClock(device_t device, unsigned type, unsigned *mhz) {
    ENTER(device);
    return leave(gpu ? clock_of(type, gpu->default_application_mhz[0], gpu->default_application_mhz[1], mhz) : result);
}

static result_t list(const uint32_t *from, unsigned count, unsigned *room, unsigned *to) {
    unsigned had = *room;
    *room = count;
    if (had < count || to == NULL)
        return count ? INSUFFICIENT_SIZE : SUCCESS;
    memcpy(to, from, count * sizeof *to);
    return SUCCESS;
}

API nvmlDeviceGetSupportedMemoryClocks(device_t device, unsigned *count, unsigned *mhz) {
    ENTER(device);
    return leave(gpu ? list(gpu->memory_clock_mhz, gpu->memory_clocks, count, mhz) : result);
}

API nvmlDeviceGetSupportedGraphicsClocks(device_t device, unsigned memory_mhz, unsigned *count, unsigned *mhz) {
    ENTER(device);
    for (unsigned i = 0; gpu && i < gpu->memory_clocks; i++)
        if (gpu->memory_clock_mhz[i] == memory_mhz)
            return leave(list(gpu->graphics_clock_mhz[i], gpu->graphics_clocks[i], count, mhz));
    return leave(gpu ? NOT_FOUND : result);
}

static result_t running(const struct gpu *gpu, unsigned *count, struct process *processes) {
    unsigned room = *count, found = 0;
    for (int i = 0; i < LOADS; i++)
        found += gpu->loads[i].pid != 0;
    *count = found;
    if (found > room || (found && processes == NULL))
        return INSUFFICIENT_SIZE;
    for (int i = 0; i < LOADS; i++)
        if (gpu->loads[i].pid != 0)
            *processes++ = (struct process){(unsigned)gpu->loads[i].pid, gpu->loads[i].used_bytes, ~0u, ~0u};
    return SUCCESS;
}

API nvmlDeviceGetComputeRunningProcesses_v3(device_t device, unsigned *count, struct process *processes) {
    ENTER(device);
    return leave(gpu ? running(gpu, count, processes) : result);
}

/* As drivers before 510 name it. */
API nvmlDeviceGetComputeRunningProcesses_v2(device_t device, unsigned *count, struct process *processes) {
    ENTER(device);
    return leave(gpu ? running(gpu, count, processes) : result);
}

API nvmlDeviceGetPowerManagementLimitConstraints(device_t device, unsigned *lowest_mw, unsigned *highest_mw) {
    ENTER(device);
    if (gpu) {
        *lowest_mw = gpu->lowest_limit_mw;
        *highest_mw = gpu->highest_limit_mw;
    }
    return leave(result);
}

API nvmlDeviceSetPowerManagementLimit(device_t device, unsigned limit_mw) {
    ENTER(device);
    if (gpu && (limit_mw < gpu->lowest_limit_mw || limit_mw > gpu->highest_limit_mw))
        result = INVALID_ARGUMENT;
    else if (gpu && struck != FAULT_IGNORE)
        gpu->limit_mw = limit_mw;
    record(index, __func__, limit_mw, 0, result);
    return leave(result);
}

static result_t lock_clocks(uint32_t lock_mhz[2], unsigned lowest_mhz, unsigned highest_mhz, unsigned slowest_mhz,
                            unsigned fastest_mhz) {
    if (lowest_mhz > highest_mhz || highest_mhz < slowest_mhz || lowest_mhz > fastest_mhz)
        return INVALID_ARGUMENT;
    if (struck != FAULT_IGNORE) {
        lock_mhz[0] = lowest_mhz;
        lock_mhz[1] = highest_mhz;
    }
    return SUCCESS;
}

API nvmlDeviceSetGpuLockedClocks(device_t device, unsigned lowest_mhz, unsigned highest_mhz) {
    ENTER(device);
    if (gpu)
        result = lock_clocks(gpu->gpu_lock_mhz, lowest_mhz, highest_mhz,
                             gpu->graphics_clock_mhz[0][gpu->graphics_clocks[0] - 1], gpu->graphics_clock_mhz[0][0]);
    record(index, __func__, lowest_mhz, highest_mhz, result);
    return leave(result);
}

API nvmlDeviceSetMemoryLockedClocks(device_t device, unsigned lowest_mhz, unsigned highest_mhz) {
    ENTER(device);
    if (gpu)
        result = lock_clocks(gpu->memory_lock_mhz, lowest_mhz, highest_mhz,
                             gpu->memory_clock_mhz[gpu->memory_clocks - 1], gpu->memory_clock_mhz[0]);
    record(index, __func__, lowest_mhz, highest_mhz, result);
    return leave(result);
}

API nvmlDeviceResetGpuLockedClocks(device_t device) {
    ENTER(device);
    if (gpu && struck != FAULT_IGNORE)
        gpu->gpu_lock_mhz[0] = gpu->gpu_lock_mhz[1] = 0;
    record(index, __func__, 0, 0, result);
    return leave(result);
}

API nvmlDeviceResetMemoryLockedClocks(device_t device) {
    ENTER(device);
    if (gpu && struck != FAULT_IGNORE)
        gpu->memory_lock_mhz[0] = gpu->memory_lock_mhz[1] = 0;
    record(index, __func__, 0, 0, result);
    return leave(result);
}

API nvmlDeviceSetPersistenceMode(device_t device, unsigned mode) {
    ENTER(device);
    if (gpu && struck != FAULT_IGNORE)
        gpu->persistence = mode != 0;
    record(index, __func__, mode, 0, result);
    return leave(result);
}

/* A structure that is missing is told first, then a wrong version, then that the board knows no profiles. */
static result_t profiles_of(const struct gpu *gpu, const void *structure, int version_fits) {
    if (structure == NULL)
        return INVALID_ARGUMENT;
    if (!version_fits)
        return ARGUMENT_VERSION_MISMATCH;
    return gpu->profiles ? SUCCESS : NOT_SUPPORTED;
}

static void support(const struct gpu *gpu, unsigned mask[MASK_WORDS]) {
    memset(mask, 0, MASK_WORDS * sizeof *mask);
    for (uint32_t i = 0; i < gpu->profiles; i++)
        mask[gpu->profile[i].number / 32] |= 1u << gpu->profile[i].number % 32;
}

API nvmlDeviceWorkloadPowerProfileGetCurrentProfiles(device_t device, struct current_profiles *current) {
    ENTER(device);
    if (gpu)
        result = profiles_of(gpu, current, current && current->version == CURRENT_PROFILES_V1);
    if (gpu && result == SUCCESS) {
        support(gpu, current->supported.mask);
        memcpy(current->requested.mask, gpu->requested_profiles, sizeof current->requested.mask);
        enforce(gpu, current->enforced.mask);
    }
    return leave(result);
}

/* The limit of the enforced profiles, the smallest if there are several; 0: none of them has one. */
static uint32_t profile_limit_mw(const struct gpu *gpu) {
    uint32_t enforced[MASK_WORDS], least_mw = 0;
    enforce(gpu, enforced);
    for (uint32_t i = 0; i < gpu->profiles; i++) {
        uint32_t number = gpu->profile[i].number, limit_mw = gpu->profile[i].limit_mw;
        if (enforced[number / 32] >> number % 32 & 1 && limit_mw && (least_mw == 0 || limit_mw < least_mw))
            least_mw = limit_mw;
    }
    return least_mw;
}

static result_t update(struct gpu *gpu, unsigned operation, const unsigned mask[MASK_WORDS]) {
    unsigned supported[MASK_WORDS];
    support(gpu, supported);
    if (operation > OVERWRITE)
        return INVALID_ARGUMENT;
    for (int i = 0; i < MASK_WORDS; i++)
        if (mask[i] & ~supported[i])
            return INVALID_ARGUMENT;
    if (struck == FAULT_IGNORE)
        return SUCCESS;
    uint32_t before_mw = profile_limit_mw(gpu);
    for (int i = 0; i < MASK_WORDS; i++) {
        uint32_t now = gpu->requested_profiles[i];
        gpu->requested_profiles[i] = operation == OVERWRITE ? mask[i] : operation == ADD ? now | mask[i] : now & ~mask[i];
    }
    uint32_t limit_mw = profile_limit_mw(gpu);
    if (limit_mw != before_mw)
        gpu->limit_mw = limit_mw ? limit_mw : gpu->default_limit_mw;
    return SUCCESS;
}

#define REQUEST(name, operation)                                                                                       \
    API name(device_t device, struct requested_profiles *requested) {                                                  \
        ENTER(device);                                                                                                 \
        if (gpu)                                                                                                       \
            result = profiles_of(gpu, requested, requested && requested->version == REQUESTED_PROFILES_V1);            \
        if (gpu && result == SUCCESS)                                                                                  \
            result = update(gpu, operation, requested->profiles.mask);                                                 \
        record(index, __func__, requested ? requested->profiles.mask[0] : 0, operation, result);                       \
        return leave(result);                                                                                          \
    }

REQUEST(nvmlDeviceWorkloadPowerProfileSetRequestedProfiles, ADD)
REQUEST(nvmlDeviceWorkloadPowerProfileClearRequestedProfiles, CLEAR)

/* This structure has no version. */
API nvmlDeviceWorkloadPowerProfileUpdateProfiles_v1(device_t device, struct updated_profiles *updated) {
    ENTER(device);
    if (gpu)
        result = profiles_of(gpu, updated, 1);
    if (gpu && result == SUCCESS)
        result = update(gpu, updated->operation, updated->profiles.mask);
    record(index, __func__, updated ? updated->profiles.mask[0] : 0, updated ? updated->operation : 0, result);
    return leave(result);
}
