/* The part of AMD's system management library that amdsmi, zeus and ecoshare call, on the state of the fake driver.
 *
 * `build.py` adds every other function that amdsmi looks up, each of which is not supported. The driver counts GPUs in
 * the opposite order of HIP, as some machines do: a caller that mixes the two up meets the wrong GPU.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "../model.h"
#include "../shared.h"

#define API __attribute__((visibility("default"))) int

enum { INVALID = 1, UNSUPPORTED = 2, NO_PERMISSION = 10, NOT_INITIALISED = 32, NO_DRIVER = 51, NO_GPU_FOUND = 31 };
enum { PCIE = 1, XGMI = 2, LEVEL_SYSTEM = 50 };
enum { LONGEST = 256, GFX = 0, MEM = 4, NOT_TOLD = 0xFFFF };

static const char handles[GPUS];

struct enumeration {
    uint32_t drm_render, drm_card, hsa_id, hip_id;
    char hip_uuid[LONGEST];
};

struct asic {
    char market_name[LONGEST];
    uint32_t vendor_id;
    char vendor_name[LONGEST];
    uint32_t subvendor_id;
    uint64_t device_id;
    uint32_t rev_id;
    char asic_serial[LONGEST];
    uint32_t oam_id, compute_units, padding;
    uint64_t target_graphics_version;
    uint32_t subsystem_id, reserved[21];
} __attribute__((packed));

struct driver {
    char version[LONGEST], date[LONGEST], name[LONGEST];
};

struct vram {
    uint32_t total_mb, used_mb, reserved[2];
};

struct cap {
    uint64_t cap_uw, default_uw, dpm, lowest_uw, highest_uw, reserved[3];
};

struct power {
    uint64_t socket;
    uint32_t current_w, average_w;
    uint64_t volts[3];
    uint32_t limit, padding;
    uint64_t reserved[18];
};

struct clock {
    uint32_t mhz, lowest_mhz, highest_mhz;
    uint8_t locked, deep_sleep, padding[2];
    uint32_t reserved[4];
};

struct activity {
    uint32_t gfx, umc, mm, reserved[13];
};

struct process {
    char name[LONGEST];
    uint32_t pid, padding;
    uint64_t mem;
    struct {
        uint64_t gfx, enc;
        uint32_t reserved[12];
    } engine;
    struct {
        uint64_t gtt, cpu, vram;
        uint32_t reserved[10];
    } memory;
    char container[LONGEST];
    uint32_t occupancy, reserved[11];
};

/* AMD's number for a result of the shared state, which has NVIDIA's; 4 is `no permission` there. */
static int amd(result_t result) {
    switch ((int)result) {
    case SUCCESS:
        return 0;
    case UNINITIALIZED:
        return NOT_INITIALISED;
    case INVALID_ARGUMENT:
        return INVALID;
    case NOT_SUPPORTED:
        return UNSUPPORTED;
    case 4:
        return NO_PERMISSION;
    case NOT_FOUND:
        return NO_GPU_FOUND;
    case DRIVER_NOT_LOADED:
        return NO_DRIVER;
    default:
        return -1;
    }
}

static int number(const void *handle) {
    const char *place = handle;
    return place >= handles && place < handles + GPUS ? (int)(place - handles) : GPUS;
}

#define ENTER(handle)                                                                                                  \
    int index = number(handle);                                                                                        \
    result_t result = enter(index, __func__);                                                                          \
    struct gpu *gpu = result == SUCCESS ? &page->gpu[index] : NULL

#define LEAVE return amd(leave(result))

API amdsmi_init(uint64_t flags) {
    (void)flags;
    return amd(leave(attach(__func__)));
}

API amdsmi_shut_down(void) { return amd(detach()); }

API amdsmi_status_code_to_string(int status, const char **text) {
    *text = status == NO_PERMISSION ? "AMDSMI_STATUS_NO_PERM: Permission denied."
            : status == UNSUPPORTED ? "AMDSMI_STATUS_NOT_SUPPORTED: Not supported."
                                    : "AMDSMI_STATUS: an error.";
    return 0;
}

API amdsmi_get_socket_handles(uint32_t *count, const void **sockets) {
    if (sockets != NULL)
        sockets[0] = handles;
    *count = 1;
    return 0;
}

API amdsmi_get_processor_handles(const void *socket, uint32_t *count, const void **processors) {
    (void)socket;
    result_t result = enter(NO_GPU, __func__);
    if (result == SUCCESS) {
        for (uint32_t i = 0; processors != NULL && i < page->gpus; i++)
            processors[i] = &handles[page->gpus - 1 - i];
        *count = page->gpus;
    }
    LEAVE;
}

API amdsmi_get_gpu_enumeration_info(const void *handle, struct enumeration *info) {
    ENTER(handle);
    if (gpu) {
        memset(info, 0, sizeof *info);
        info->hip_id = (uint32_t)index;
        snprintf(info->hip_uuid, sizeof info->hip_uuid, "%s", gpu->uuid);
    }
    LEAVE;
}

API amdsmi_get_gpu_device_uuid(const void *handle, uint32_t *length, char *uuid) {
    ENTER(handle);
    if (gpu)
        snprintf(uuid, *length, "%s", gpu->uuid);
    LEAVE;
}

API amdsmi_get_gpu_asic_info(const void *handle, struct asic *info) {
    ENTER(handle);
    if (gpu) {
        memset(info, 0, sizeof *info);
        snprintf(info->market_name, sizeof info->market_name, "%s", gpu->name);
        snprintf(info->asic_serial, sizeof info->asic_serial, "0x%d", index);
    }
    LEAVE;
}

API amdsmi_get_gpu_driver_info(const void *handle, struct driver *info) {
    ENTER(handle);
    if (gpu) {
        memset(info, 0, sizeof *info);
        snprintf(info->version, sizeof info->version, "%s", page->driver_version);
    }
    LEAVE;
}

static uint64_t used_bytes(const struct gpu *gpu) {
    uint64_t sum = gpu->reserved_bytes;
    for (int i = 0; i < LOADS; i++)
        sum += gpu->loads[i].used_bytes;
    return sum < gpu->memory_bytes ? sum : gpu->memory_bytes;
}

API amdsmi_get_gpu_vram_usage(const void *handle, struct vram *vram) {
    ENTER(handle);
    if (gpu) {
        vram->total_mb = (uint32_t)(gpu->memory_bytes >> 20);
        vram->used_mb = (uint32_t)(used_bytes(gpu) >> 20);
    }
    LEAVE;
}

API amdsmi_get_gpu_process_list(const void *handle, uint32_t *count, struct process *processes) {
    ENTER(handle);
    if (gpu) {
        uint32_t found = 0;
        for (int i = 0; i < LOADS; i++)
            if (gpu->loads[i].pid != 0 && found < *count) {
                struct process *process = &processes[found++];
                memset(process, 0, sizeof *process);
                process->pid = (uint32_t)gpu->loads[i].pid;
                process->mem = process->memory.vram = gpu->loads[i].used_bytes;
            }
        *count = found;
    }
    LEAVE;
}

API amdsmi_get_gpu_activity(const void *handle, struct activity *activity) {
    ENTER(handle);
    if (gpu) {
        double compute = 0.0, memory = 0.0;
        for (int i = 0; i < LOADS; i++) {
            compute += gpu->loads[i].compute;
            memory += gpu->loads[i].memory;
        }
        activity->gfx = (uint32_t)(100.0 * (compute < 1.0 ? compute : 1.0));
        activity->umc = (uint32_t)(100.0 * (memory < 1.0 ? memory : 1.0));
        activity->mm = NOT_TOLD;
    }
    LEAVE;
}

API amdsmi_get_clock_info(const void *handle, int type, struct clock *clock) {
    ENTER(handle);
    if (gpu) {
        struct point point = operate(gpu);
        memset(clock, 0, sizeof *clock);
        clock->mhz = type == GFX ? point.graphics_mhz : point.memory_mhz;
        clock->highest_mhz = type == GFX ? gpu->graphics_clock_mhz[0][0] : gpu->memory_clock_mhz[0];
    }
    LEAVE;
}

/* Boards tell one of the two powers: this one the present draw. */
API amdsmi_get_power_info(const void *handle, struct power *power) {
    ENTER(handle);
    if (gpu) {
        memset(power, 0, sizeof *power);
        power->current_w = (uint32_t)(operate(gpu).power_w + 0.5);
        power->average_w = NOT_TOLD;
    }
    LEAVE;
}

API amdsmi_get_temp_metric(const void *handle, int sensor, int metric, int64_t *millidegrees) {
    (void)sensor;
    (void)metric;
    ENTER(handle);
    if (gpu)
        *millidegrees = 1000 * (int64_t)gpu->temperature_c;
    LEAVE;
}

/* The counter has steps of 15.3 microjoules, as on MI200 and MI300. */
API amdsmi_get_energy_count(const void *handle, uint64_t *steps, float *microjoules, uint64_t *at_ns) {
    ENTER(handle);
    if (gpu) {
        if (struck == FAULT_RESET)
            gpu->energy_mj = gpu->published_mj = 0.0;
        if (struck != FAULT_STALE)
            gpu->returned_mj = gpu->published_mj;
        *microjoules = 15.3f;
        *steps = (uint64_t)(gpu->returned_mj * 1000.0 / 15.3);
        *at_ns = 0;
    }
    LEAVE;
}

API amdsmi_get_power_cap_info(const void *handle, uint32_t sensor, struct cap *cap) {
    (void)sensor;
    ENTER(handle);
    if (gpu) {
        memset(cap, 0, sizeof *cap);
        cap->cap_uw = 1000ull * gpu->limit_mw;
        cap->default_uw = 1000ull * gpu->default_limit_mw;
        cap->lowest_uw = 1000ull * gpu->lowest_limit_mw;
        cap->highest_uw = 1000ull * gpu->highest_limit_mw;
    }
    LEAVE;
}

API amdsmi_set_power_cap(const void *handle, uint32_t sensor, uint64_t cap_uw) {
    (void)sensor;
    ENTER(handle);
    uint32_t limit_mw = (uint32_t)(cap_uw / 1000);
    if (gpu && (limit_mw < gpu->lowest_limit_mw || limit_mw > gpu->highest_limit_mw))
        result = INVALID_ARGUMENT;
    else if (gpu && struck != FAULT_IGNORE)
        gpu->limit_mw = limit_mw;
    record(index, __func__, limit_mw, 0, result);
    LEAVE;
}

/* A link that was set as NVLinks is XGMI here, any other one PCIe; the level `system` means two NUMA nodes. */
API amdsmi_topo_get_link_type(const void *handle, const void *other, uint64_t *hops, uint32_t *type) {
    ENTER(handle);
    int peer = number(other);
    if (gpu && (peer == GPUS || (gpu->peer_links[peer] == 0 && gpu->common_level[peer] == 0)))
        result = NOT_SUPPORTED;
    else if (gpu) {
        *hops = gpu->peer_links[peer] ? 1 : 2;
        *type = gpu->peer_links[peer] ? XGMI : PCIE;
    }
    LEAVE;
}

API amdsmi_topo_get_numa_node_number(const void *handle, uint32_t *node) {
    ENTER(handle);
    if (gpu)
        *node = gpu->common_level[0] == LEVEL_SYSTEM + 1;
    LEAVE;
}
