#ifndef MODEL_H
#define MODEL_H

#include "state.h"

/* Bits of nvmlClocksEventReasons. */
enum { IDLE = 0x1, APPLICATION_CLOCKS = 0x2, POWER_CAP = 0x4 };

struct point {
    uint32_t graphics_mhz;
    uint32_t memory_mhz;
    double power_w;
    double memory_w;
    uint64_t reasons; /* nvmlClocksEventReason* */
};

/* At what clocks the GPU runs with its present loads and settings, and what it draws there. */
struct point operate(const struct gpu *gpu);

/* The profiles that are left of the requested ones: of two that conflict, the one with the smaller priority. */
void enforce(const struct gpu *gpu, uint32_t enforced[MASK_WORDS]);

/* Counts the GPU's energy up to `to_ns`, its loads and settings having been the same since `until_ns`. */
void integrate(const struct page *page, struct gpu *gpu, int64_t to_ns);

/* Carries out all events up to `now_ns`, ends the loads of dead processes and counts all energy. */
void settle(struct page *page, int64_t now_ns);

/* The kernel's letter for the status of a process, and when it was started; 0 if it has ended. A zombie has lost its
 * contexts. */
char process_status(int32_t pid, uint64_t *started_ticks);

#endif
