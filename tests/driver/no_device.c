/* libcuda.so.1 of a machine with a driver and without a device. Each process that initialises CUDA notes its number in
   the file CUDA_INIT_LOG. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define API __attribute__((visibility("default"))) int

enum { OK = 0, NO_DEVICE = 100 };

API cuInit(unsigned flags) {
    const char *path = getenv("CUDA_INIT_LOG");
    int file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
    (void)flags;
    if (file >= 0) {
        dprintf(file, "%d\n", getpid());
        close(file);
    }
    return NO_DEVICE;
}

API cuDriverGetVersion(int *version) {
    *version = 13000;
    return OK;
}

API cuDeviceGetCount(int *count) {
    *count = 0;
    return NO_DEVICE;
}

static int any_other(void) { return NO_DEVICE; }

API cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags, int *status) {
    (void)version, (void)flags;
    *function = !strcmp(name, "cuInit")               ? (void *)cuInit
                : !strcmp(name, "cuDriverGetVersion") ? (void *)cuDriverGetVersion
                : !strcmp(name, "cuDeviceGetCount")   ? (void *)cuDeviceGetCount
                : !strcmp(name, "cuGetProcAddress")   ? (void *)cuGetProcAddress_v2
                                                      : (void *)any_other;
    if (status) *status = 0;
    return OK;
}

API cuGetProcAddress(const char *name, void **function, int version, unsigned long long flags) {
    return cuGetProcAddress_v2(name, function, version, flags, 0);
}
