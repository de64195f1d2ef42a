/* How the GPUs are linked: NVLinks to other GPUs and to switches, and the parts of PCIe that two of them share. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "nvml.h"

struct pci {
    char legacy_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char id[32];
};

enum { TO_GPU = 0, TO_SWITCH = 2, FIRST_BUS = 0x10, SWITCH_BUS = 0xC0 };

static void place(struct pci *pci, unsigned bus) {
    memset(pci, 0, sizeof *pci);
    pci->bus = bus;
    snprintf(pci->legacy_id, sizeof pci->legacy_id, "0000:%02X:00.0", bus);
    snprintf(pci->id, sizeof pci->id, "00000000:%02X:00.0", bus);
}

API nvmlDeviceGetPciInfo_v3(device_t device, struct pci *pci) {
    ENTER(device);
    if (gpu)
        place(pci, FIRST_BUS + (unsigned)index);
    return leave(result);
}

/* The GPU at the other end of a link, GPUS for a switch; an error for a link that is not there. */
static result_t remote(const struct gpu *gpu, unsigned link, unsigned *to) {
    unsigned links = gpu->switch_links;
    for (unsigned i = 0; i < GPUS; i++)
        links += gpu->peer_links[i];
    if (links == 0)
        return NOT_SUPPORTED;
    if (link >= links)
        return INVALID_ARGUMENT;
    for (*to = 0; *to < GPUS && link >= gpu->peer_links[*to]; ++*to)
        link -= gpu->peer_links[*to];
    return SUCCESS;
}

API nvmlDeviceGetNvLinkState(device_t device, unsigned link, unsigned *is_active) {
    ENTER(device);
    unsigned to;
    if (gpu && (result = remote(gpu, link, &to)) == SUCCESS)
        *is_active = link >= gpu->idle_links;
    return leave(result);
}

API nvmlDeviceGetNvLinkRemoteDeviceType(device_t device, unsigned link, unsigned *type) {
    ENTER(device);
    unsigned to;
    if (gpu && (result = remote(gpu, link, &to)) == SUCCESS)
        *type = to == GPUS ? TO_SWITCH : TO_GPU;
    return leave(result);
}

API nvmlDeviceGetNvLinkRemotePciInfo_v2(device_t device, unsigned link, struct pci *pci) {
    ENTER(device);
    unsigned to;
    if (gpu && (result = remote(gpu, link, &to)) == SUCCESS)
        place(pci, to == GPUS ? SWITCH_BUS : FIRST_BUS + to);
    return leave(result);
}

API nvmlDeviceGetTopologyCommonAncestor(device_t device, device_t other, unsigned *level) {
    ENTER(device);
    unsigned told = gpu && number(other) < GPUS ? gpu->common_level[number(other)] : 0;
    if (gpu && told)
        *level = told - 1;
    return leave(gpu && !told ? NOT_SUPPORTED : result);
}
