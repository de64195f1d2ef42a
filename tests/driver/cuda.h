/* The files that the processes of one device share with libcuda.so.1, beside the state of NVML.
 *
 *   nvml.state            state.h
 *   nvml.state.cuda       struct cuda: the state of each process that has used CUDA
 *   nvml.state.cuda.PID   locked for as long as a call for this process lasts
 *   nvml.state.memoryN    struct ledger: the memory of GPU N
 *
 * Each file is locked (flock) while it is changed. `cuda_processes.py` and `device_memory.py` mirror the layouts; a test
 * compares them.
 */
#ifndef CUDA_H
#define CUDA_H

#include "state.h"

enum { PROCESSES = 128 };
enum { NO_MAPPINGS = 0, MAPPED = 1, TO_UNMAP = 2, UNMAPPED = 3, TO_MAP = 4 };
enum { RUNNING = 0, LOCKED = 1, CHECKPOINTED = 2, FAILED = 3 };

struct process {
    int32_t pid; /* 0: free */
    int32_t state;
    uint64_t started_ticks;
    int32_t calls;              /* CUDA calls that the process is in */
    int32_t works;              /* whether its work runs on the device */
    int32_t locker;             /* process that waits for these calls to end; 0: none */
    int32_t mapped;             /* mappings of device memory: NO_MAPPINGS to TO_MAP */
    int64_t parked_bytes[GPUS]; /* memory that was on each GPU before the checkpoint */
    struct load loads[GPUS];    /* load that NVML showed */
};

struct cuda {
    struct process processes[PROCESSES];
};

struct owner {
    int64_t pid, started_ticks, bytes;
};

struct ledger {
    int64_t total_bytes, most_bytes, refused;
    struct owner owners[PROCESSES];
};

#endif
