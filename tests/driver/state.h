/* The file that all processes of one test share: what the driver and its GPUs are at this moment.
 *
 *   ┌────────┬────────┬────────┐
 *   │ header │ page 0 │ page 1 │   header.which names the valid page
 *   └────────┴────────┴────────┘
 *
 * Who changes anything locks the file, copies the valid page over the other one, changes the copy and stores `which`.
 * A process killed on the way leaves the old page valid. `state.py` mirrors the layout; a test compares the two.
 */
#ifndef STATE_H
#define STATE_H

#include <stdint.h>

#define MAGIC 0x4c4d564e454b4146u /* "FAKENVML" */
#define VERSION 5

enum { GPUS = 8, LOADS = 32, MEMORY_CLOCKS = 4, GRAPHICS_CLOCKS = 160, EVENTS = 1024, FAULTS = 16, CALLS = 256 };
enum { PROFILES = 8, MASK_WORDS = 8 };

/* One process on one GPU. `started_ticks` is when it was started (field 22 of /proc/PID/stat), for loads that end with
 * their process; 0 for those of invented processes. */
struct load {
    double compute;
    double memory;
    uint64_t used_bytes;
    uint64_t started_ticks;
    int32_t pid;
    int32_t unused;
};

/* The coefficients of the power model, which model.c has in words; watts at the highest clocks. */
struct coefficients {
    double floor_w;
    double leak_w;
    double context_w;
    double compute_w;
    double memory_w;
    double memory_exponent;
    double lowest_volts; /* relative to the highest clock's */
    double knee;         /* part of the highest clock up to which the voltage stays lowest */
};

/* A workload power profile of the board. What it does to clocks and limit is invented: NVML does not say. */
struct profile {
    uint32_t number;    /* its bit in the masks */
    uint32_t priority;  /* the smaller one wins among profiles that conflict */
    uint32_t limit_mw;  /* the power limit becomes this while it is enforced, then the default one; 0: it stays */
    uint32_t ceiling_mhz; /* the graphics clock stays below this, and no reason is told; 0: none */
    uint32_t conflicts[MASK_WORDS];
};

struct gpu {
    char name[64];
    char uuid[64];
    uint64_t memory_bytes;
    uint64_t reserved_bytes;
    uint32_t architecture;
    uint32_t capability; /* 86: compute capability 8.6 */
    uint32_t compute_mode;
    uint32_t mig_mode; /* 2: the board cannot */
    uint32_t persistence;
    uint32_t temperature_c;
    uint32_t limit_mw;
    uint32_t default_limit_mw;
    uint32_t lowest_limit_mw;
    uint32_t highest_limit_mw;
    uint32_t memory_clocks;                                     /* how many there are */
    uint32_t memory_clock_mhz[MEMORY_CLOCKS];                   /* highest first */
    uint32_t graphics_clocks[MEMORY_CLOCKS];                    /* how many go with each memory clock */
    uint32_t graphics_clock_mhz[MEMORY_CLOCKS][GRAPHICS_CLOCKS]; /* highest first */
    uint32_t gpu_lock_mhz[2];    /* lowest and highest; 0, 0: unlocked */
    uint32_t memory_lock_mhz[2];
    uint32_t application_mhz[2]; /* graphics, memory */
    uint32_t default_application_mhz[2];
    uint32_t ceiling_mhz; /* what is achieved at most, whatever is requested; 0: none */
    uint32_t ceiling_reasons; /* and why, as bits of nvmlClocksEventReasons */
    uint32_t loaded_memory_mhz; /* the highest memory clock while a process is there (P2); 0: that of the table */
    uint32_t sampled_ms; /* so long the counter looks in each of its periods, for all of it; 0: always */
    uint32_t shutdown_c;  /* the temperature at which the board turns itself off */
    uint32_t profiles; /* how many it has; 0: the board knows none */
    uint32_t remapping; /* rows of memory: bit 0, a remapping waits for a reset; bit 1, one has failed */
    uint32_t ecc_errors; /* uncorrected errors since the driver was loaded */
    uint32_t has_ecc;
    uint32_t peer_links[GPUS];    /* NVLinks to each GPU; they are numbered in the order of the GPUs */
    uint32_t switch_links;        /* NVLinks to the NVSwitches, numbered after those */
    uint32_t idle_links;          /* so many links, the first ones, are there and not active */
    uint32_t common_level[GPUS];  /* NVML's level that is shared with each GPU, plus 1; 0: not told */
    struct profile profile[PROFILES];
    uint32_t requested_profiles[MASK_WORDS];
    struct coefficients coefficients;
    struct load loads[LOADS]; /* pid 0: free */
    int64_t until_ns;         /* up to when energy is counted */
    double energy_mj; /* as the counter counts it */
    double published_mj; /* at the last tick */
    double returned_mj;  /* at the last reading that was answered */
    double average_w;
};

enum { EVENT_LOAD = 1, EVENT_END = 2, EVENT_CEILING = 3, EVENT_TEMPERATURE = 4 };

struct event {
    int64_t at_ns;
    uint32_t gpu;
    uint32_t kind;
    uint32_t value; /* of a ceiling or a temperature */
    uint32_t unused;
    struct load load;
};

enum { FAULT_RETURN = 1, FAULT_IGNORE = 2, FAULT_STALE = 3, FAULT_RESET = 4, FAULT_HANG = 5 };

struct fault {
    char functions[256]; /* a pattern of fnmatch with FNM_EXTMATCH */
    uint32_t kind;       /* 0: none here */
    uint32_t code;
    int32_t gpu; /* -1: any */
    uint32_t first;
    uint32_t times; /* 0: for ever */
    uint32_t calls;
    uint32_t struck;
    uint32_t unused;
};

struct call {
    char function[64];
    int64_t at_ns;
    int32_t pid;
    uint32_t gpu;
    uint32_t values[2];
    uint32_t result;
    uint32_t unused;
};

struct page {
    uint32_t gpus;
    uint32_t is_virtual;
    int64_t virtual_ns;
    int64_t period_ns;
    int64_t phase_ns;
    char driver_version[32];
    char nvml_version[32];
    uint64_t tells_cuda; /* whether the driver has a CUDA of its own, and tells its version */
    uint64_t events_begun; /* how many were ever appended; the ring's place is the remainder */
    uint64_t events_done;
    uint64_t calls_made;
    struct gpu gpu[GPUS];
    struct event events[EVENTS];
    struct fault faults[FAULTS];
    struct call calls[CALLS];
};

struct header {
    uint64_t magic;
    uint32_t version;
    uint32_t size_bytes;
    uint32_t which;
    uint32_t unused;
    char library[256];
};

struct state {
    struct header header;
    struct page pages[2];
};

#endif
