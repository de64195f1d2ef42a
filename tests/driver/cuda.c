/* The checkpoint calls of libcuda.so.1, without a driver: a checkpoint really takes the memory of a process off the
 * ledger of the device, and a restore takes it again. A thread of the driver in that process unmaps the device's memory
 * meanwhile, and maps it at the old addresses, over whatever is there (MAP_FIXED).
 *
 * Compiled with OLD_DRIVER it is the library of a driver before 570, without these calls.
 */
#define _GNU_SOURCE
#include "cuda.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "model.h"
#include "shared.h"

#define API __attribute__((visibility("default"))) int

enum {
    CUDA_SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    OPERATING_SYSTEM = 304,
    ILLEGAL_STATE = 401,
    NOT_READY = 600
};

static const struct {
    int code;
    const char *name;
} NAMES[] = {
    {0, "CUDA_SUCCESS"},
    {1, "CUDA_ERROR_INVALID_VALUE"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY"},
    {3, "CUDA_ERROR_NOT_INITIALIZED"},
    {100, "CUDA_ERROR_NO_DEVICE"},
    {304, "CUDA_ERROR_OPERATING_SYSTEM"},
    {401, "CUDA_ERROR_ILLEGAL_STATE"},
    {600, "CUDA_ERROR_NOT_READY"},
    {800, "CUDA_ERROR_NOT_PERMITTED"},
    {801, "CUDA_ERROR_NOT_SUPPORTED"},
    {999, "CUDA_ERROR_UNKNOWN"},
};

static int initialised;

API cuInit(unsigned flags) {
    if (flags != 0)
        return INVALID_VALUE;
    result_t result = leave(attach(__func__));
    initialised = initialised || result == SUCCESS;
    return result == DRIVER_NOT_LOADED ? NO_DEVICE : (int)result;
}

API cuDriverGetVersion(int *version) {
#ifdef OLD_DRIVER
    *version = 12040;
#else
    *version = 13000;
#endif
    return CUDA_SUCCESS;
}

API cuGetErrorName(int code, const char **name) {
    *name = NULL;
    for (unsigned i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (NAMES[i].code == code)
            *name = NAMES[i].name;
    return *name == NULL ? INVALID_VALUE : CUDA_SUCCESS;
}

#ifndef OLD_DRIVER

/* A file of the shared ones, mapped and locked. */
struct locked {
    int descriptor;
    void *memory;
    size_t size;
};

struct lock_args {
    unsigned timeout_ms, reserved0;
    uint64_t reserved1[7];
};

/* A call for one process. `fault` is how a test wants it to go on: 0 or FAULT_HANG. */
struct operation {
    int descriptor;
    uint32_t fault;
    struct locked cuda;
    struct process *process;
};

static void sleep_ms(int ms) { usleep((useconds_t)ms * 1000); }

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int opened(const char *suffix, int flags) {
    char path[PATH_MAX];
    const char *named = getenv("FAKE_NVML_STATE");
    if (named == NULL || snprintf(path, sizeof path, "%s%s", named, suffix) >= (int)sizeof path)
        return -1;
    int descriptor = open(path, O_RDWR | O_CLOEXEC | flags, 0600);
    while (descriptor >= 0 && flock(descriptor, LOCK_EX) != 0 && errno == EINTR)
        ;
    return descriptor;
}

static int take(struct locked *file, const char *suffix, size_t size) {
    file->descriptor = opened(suffix, 0);
    file->size = size;
    if (file->descriptor < 0)
        return 0;
    file->memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file->descriptor, 0);
    if (file->memory != MAP_FAILED)
        return 1;
    close(file->descriptor);
    return 0;
}

static void give(struct locked *file) {
    munmap(file->memory, file->size);
    flock(file->descriptor, LOCK_UN);
    close(file->descriptor);
}

static char status_of(int pid) {
    uint64_t started_ticks;
    return process_status((int32_t)pid, &started_ticks);
}

static int lives(int64_t pid, uint64_t started_ticks) {
    uint64_t found_ticks;
    return process_status((int32_t)pid, &found_ticks) != 0 && found_ticks == started_ticks;
}

/* Lock the table of processes again, after a wait. */
static int find(struct operation *operation, int pid) {
    if (!take(&operation->cuda, ".cuda", sizeof(struct cuda)))
        return NOT_INITIALIZED;
    struct process *processes = ((struct cuda *)operation->cuda.memory)->processes;
    for (int i = 0; i < PROCESSES; i++)
        if (processes[i].pid == pid && lives(pid, processes[i].started_ticks)) {
            operation->process = &processes[i];
            return CUDA_SUCCESS;
        }
    give(&operation->cuda);
    return status_of(pid) ? NOT_INITIALIZED : OPERATING_SYSTEM;
}

/* Begin a call. If it succeeds, the table of processes is locked; `finish` must be called whatever was returned. */
static int begin(struct operation *operation, int pid, const char *function) {
    char suffix[32];
    memset(operation, 0, sizeof *operation);
    operation->descriptor = -1;
    if (!initialised)
        return NOT_INITIALIZED;
    while (status_of(pid) == 'T')
        sleep_ms(1);
    if (!status_of(pid))
        return OPERATING_SYSTEM;
    snprintf(suffix, sizeof suffix, ".cuda.%d", pid);
    operation->descriptor = opened(suffix, O_CREAT);
    int result = (int)enter(NO_GPU, function);
    operation->fault = struck;
    leave((result_t)result);
    return result ? result : find(operation, pid);
}

/* End a call. One that a test lets hang has done its work by now: the driver goes on without its caller. */
static int finish(struct operation *operation, int result) {
    if (operation->process != NULL)
        give(&operation->cuda);
    while (operation->fault == FAULT_HANG)
        pause();
    if (operation->descriptor >= 0) {
        flock(operation->descriptor, LOCK_UN);
        close(operation->descriptor);
    }
    return result;
}

static int take_ledger(struct locked *file, int gpu) {
    char suffix[32];
    snprintf(suffix, sizeof suffix, ".memory%d", gpu);
    return take(file, suffix, sizeof(struct ledger));
}

static int64_t free_memory(int gpu, int pid) {
    struct locked file;
    int64_t bytes = 0;
    if (!take_ledger(&file, gpu))
        return 0;
    struct owner *owners = ((struct ledger *)file.memory)->owners;
    for (int i = 0; i < PROCESSES; i++)
        if (owners[i].pid == pid) {
            bytes = owners[i].bytes;
            memset(&owners[i], 0, sizeof owners[i]);
        }
    give(&file);
    return bytes;
}

static int allocate_memory(int gpu, const struct process *process) {
    struct locked file;
    int64_t bytes = process->parked_bytes[gpu], taken = 0;
    if (bytes == 0 || !take_ledger(&file, gpu))
        return bytes == 0;
    struct ledger *ledger = file.memory;
    struct owner *place = NULL;
    for (int i = 0; i < PROCESSES; i++) {
        struct owner *owner = &ledger->owners[i];
        if (owner->pid != 0 && !lives(owner->pid, (uint64_t)owner->started_ticks))
            memset(owner, 0, sizeof *owner);
        taken += owner->bytes;
        if (owner->pid == 0)
            place = owner;
    }
    int fits = place != NULL && taken + bytes <= ledger->total_bytes;
    if (!fits)
        ledger->refused++;
    else {
        *place = (struct owner){process->pid, (int64_t)process->started_ticks, bytes};
        if (taken + bytes > ledger->most_bytes)
            ledger->most_bytes = taken + bytes;
    }
    give(&file);
    return fits;
}

/* Take the loads of a process off what NVML shows, or put them back. */
static void show(struct process *process, int is_shown) {
    enter(NO_GPU, "");
    for (uint32_t i = 0; page != NULL && i < page->gpus; i++)
        for (int j = 0; j < LOADS; j++) {
            struct load *load = &page->gpu[i].loads[j];
            if (!is_shown && load->pid == process->pid) {
                process->loads[i] = *load;
                memset(load, 0, sizeof *load);
            } else if (is_shown && load->pid == 0 && process->loads[i].pid != 0) {
                *load = process->loads[i];
                memset(&process->loads[i], 0, sizeof *load);
            }
        }
    leave(SUCCESS);
}

/* Wait until the calls that the process is in have ended. New ones block meanwhile. */
static int drain(struct operation *operation, int pid, unsigned timeout_ms) {
    int64_t until_ms = now_ms() + timeout_ms;
    int result = CUDA_SUCCESS;
    while (operation->process->calls != 0 && result == CUDA_SUCCESS) {
        operation->process->locker = timeout_ms && now_ms() >= until_ms ? 0 : getpid();
        if (operation->process->locker == 0)
            return NOT_READY;
        give(&operation->cuda);
        operation->process = NULL;
        sleep_ms(1);
        result = find(operation, pid);
    }
    if (result == CUDA_SUCCESS)
        operation->process->locker = 0;
    return result;
}

enum { MAPPINGS = 4, MAPPING_BYTES = 2 << 20 };

static struct {
    int descriptor;
    char *at[MAPPINGS];
} own;

static void map_device(int how) {
    for (int i = 0; i < MAPPINGS; i++)
        own.at[i] = mmap(own.at[i], MAPPING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | how, own.descriptor, 0);
}

/* The thread of the driver in a process with CUDA. `word` is the `mapped` of that process. */
static void *keep_mappings(void *word) {
    volatile int32_t *mapped = word;
    for (;; sleep_ms(1))
        if (*mapped == TO_UNMAP) {
            for (int i = 0; i < MAPPINGS; i++)
                munmap(own.at[i], MAPPING_BYTES);
            if (getenv("FAKE_CUDA_INTRUDER") != NULL) /* a thread of a library, which wants memory just now */
                mmap(NULL, MAPPING_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            *mapped = UNMAPPED;
        } else if (*mapped == TO_MAP) {
            map_device(MAP_FIXED);
            *mapped = MAPPED;
        }
    return NULL;
}

/* Map memory of the device into this process, as CUDA does at its first use, and begin the driver's thread there.
 *
 * `path` is that of the device's file, and `mapped` that word of this process's entry, which stays mapped. */
API fakeMapDevice(const char *path, int32_t *mapped) {
    pthread_t thread;
    own.descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (own.descriptor < 0 || ftruncate(own.descriptor, MAPPING_BYTES) != 0)
        return OPERATING_SYSTEM;
    map_device(0);
    *mapped = MAPPED;
    return pthread_create(&thread, NULL, keep_mappings, mapped) ? OPERATING_SYSTEM : CUDA_SUCCESS;
}

/* Let the driver's thread in a process map or unmap, and wait for it. */
static int remap(struct operation *operation, int pid, int32_t asked, int32_t done) {
    int result = CUDA_SUCCESS;
    if (operation->process->mapped == NO_MAPPINGS || operation->process->mapped == done)
        return result;
    operation->process->mapped = asked;
    while (result == CUDA_SUCCESS && operation->process->mapped != done) {
        give(&operation->cuda);
        operation->process = NULL;
        sleep_ms(1);
        result = find(operation, pid);
    }
    return result;
}

API cuCheckpointProcessGetState(int pid, int *state) {
    struct operation operation;
    int result = begin(&operation, pid, __func__);
    if (result == CUDA_SUCCESS)
        *state = operation.process->state;
    return finish(&operation, result);
}

API cuCheckpointProcessLock(int pid, struct lock_args *args) {
    struct operation operation;
    int result = begin(&operation, pid, __func__);
    if (result == CUDA_SUCCESS && args != NULL && args->reserved0 != 0)
        result = INVALID_VALUE;
    if (result == CUDA_SUCCESS && operation.process->state != RUNNING)
        result = ILLEGAL_STATE;
    if (result == CUDA_SUCCESS)
        result = drain(&operation, pid, args != NULL ? args->timeout_ms : 0);
    if (result == CUDA_SUCCESS)
        operation.process->state = LOCKED;
    return finish(&operation, result);
}

API cuCheckpointProcessCheckpoint(int pid, void *args) {
    struct operation operation;
    int result = begin(&operation, pid, __func__);
    (void)args;
    if (result == CUDA_SUCCESS && operation.process->state != LOCKED)
        result = ILLEGAL_STATE;
    while (result == CUDA_SUCCESS && operation.process->works) { /* what was submitted is finished first */
        give(&operation.cuda);
        operation.process = NULL;
        sleep_ms(1);
        result = find(&operation, pid);
    }
    if (result == CUDA_SUCCESS)
        result = remap(&operation, pid, TO_UNMAP, UNMAPPED);
    if (result == CUDA_SUCCESS) {
        for (int i = 0; i < GPUS; i++)
            operation.process->parked_bytes[i] = free_memory(i, pid);
        show(operation.process, 0);
        operation.process->state = CHECKPOINTED;
    }
    return finish(&operation, result);
}

API cuCheckpointProcessRestore(int pid, void *args) {
    struct operation operation;
    int result = begin(&operation, pid, __func__);
    (void)args;
    if (result == CUDA_SUCCESS && operation.process->state != CHECKPOINTED)
        result = ILLEGAL_STATE;
    for (int i = 0; result == CUDA_SUCCESS && i < GPUS; i++)
        if (!allocate_memory(i, operation.process)) {
            for (int j = 0; j < i; j++)
                free_memory(j, pid);
            operation.process->state = FAILED; /* for ever: a second restore finds an illegal state */
            result = OUT_OF_MEMORY;
        }
    if (result == CUDA_SUCCESS)
        result = remap(&operation, pid, TO_MAP, MAPPED);
    if (result == CUDA_SUCCESS) {
        show(operation.process, 1);
        memset(operation.process->parked_bytes, 0, sizeof operation.process->parked_bytes);
        operation.process->state = LOCKED;
    }
    return finish(&operation, result);
}

API cuCheckpointProcessUnlock(int pid, void *args) {
    struct operation operation;
    int result = begin(&operation, pid, __func__);
    (void)args;
    if (result == CUDA_SUCCESS && operation.process->state != LOCKED)
        result = ILLEGAL_STATE;
    if (result == CUDA_SUCCESS)
        operation.process->state = RUNNING;
    return finish(&operation, result);
}

#endif
