/* What the files of the fake NVML share. */
#ifndef NVML_H
#define NVML_H

#include "shared.h"

#define API __attribute__((visibility("default"))) result_t

typedef const char *device_t; /* the place in `handles` is the GPU's index, whichever state is mapped */

extern const char handles[GPUS];

/* The index of a GPU; GPUS for what is no handle. */
int number(device_t device);

/* As `enter`. A call that a test lets hang holds no lock, and begins again when its fault is gone. */
result_t enter_or_hang(int gpu, const char *function);

#define ENTER(device)                                                                                                  \
    int index = number(device);                                                                                        \
    result_t result = enter_or_hang(index, __func__);                                                                  \
    struct gpu *gpu = result == SUCCESS ? &page->gpu[index] : NULL

#endif
