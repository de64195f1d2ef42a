/* What the files of the fake NVML share. */
#ifndef NVML_H
#define NVML_H

#include "shared.h"

#define API __attribute__((visibility("default"))) result_t

typedef const char *device_t; /* the place in `handles` is the GPU's index, whichever state is mapped */

extern const char handles[GPUS];

/* The index of a GPU; GPUS for what is no handle. */
int number(device_t device);

#define ENTER(device)                                                                                                  \
    int index = number(device);                                                                                        \
    result_t result = enter(index, __func__);                                                                          \
    struct gpu *gpu = result == SUCCESS ? &page->gpu[index] : NULL

#endif
