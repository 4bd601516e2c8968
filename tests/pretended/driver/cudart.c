/* The CUDA runtime of a device that is not there: one GPU, whose memory is the host's.

   What torch asks for before and around its kernels. Nothing is ever launched: the values of a
   pretended tensor are computed on the CPU. Functions that are missing here are the real
   library's, and fail for want of a driver. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define VERSION 13020
#define MEMORY ((size_t)80 << 30)
#define SUCCEEDS(name) int name() { return 0; }

/* The part of cudaDeviceProp that has stayed in its place since CUDA 12. */
struct properties {
  char name[256];
  char uuid[16];
  char luid[8];
  unsigned luid_mask;
  size_t memory;
  size_t shared_memory;
  int registers;
  int warp_size;
  size_t pitch;
  int threads_per_block;
  int block_size[3];
  int grid_size[3];
  size_t constant_memory;
  int major;
  int minor;
};

int cudaGetDeviceCount(int *count) { *count = 1; return 0; }
int cudaGetDevice(int *device) { *device = 0; return 0; }
int cudaDriverGetVersion(int *version) { *version = VERSION; return 0; }
int cudaRuntimeGetVersion(int *version) { *version = VERSION; return 0; }
int cudaDeviceGetAttribute(int *value, int attribute, int device) { *value = 1; return 0; }
int cudaDeviceCanAccessPeer(int *can, int device, int peer) { *can = 0; return 0; }

int cudaGetDeviceProperties(struct properties *of, int device) {
  memset(of, 0, sizeof *of);
  strcpy(of->name, "pretended");
  of->memory = MEMORY;
  of->warp_size = 32;
  of->threads_per_block = 1024;
  of->major = 9;
  return 0;
}
int cudaGetDeviceProperties_v2(struct properties *of, int device) {
  return cudaGetDeviceProperties(of, device);
}

/* Memory. What is pinned is remembered: torch asks whether a pointer is. */
enum { MOST = 4096, UNREGISTERED = 0, HOST = 1 };
static struct { char *start; size_t size; } pinned[MOST];
struct attributes { int type; int device; void *on_device; void *on_host; };

int cudaMalloc(void **at, size_t size) { *at = malloc(size); return *at ? 0 : 2; }
int cudaFree(void *at) { free(at); return 0; }
int cudaMemGetInfo(size_t *free_bytes, size_t *total) {
  *total = MEMORY;
  *free_bytes = MEMORY - ((size_t)1 << 30);
  return 0;
}
int cudaHostAlloc(void **at, size_t size, unsigned flags) {
  *at = malloc(size);
  for (int i = 0; *at && i < MOST; i++)
    if (!pinned[i].start) {
      pinned[i].size = size;
      pinned[i].start = *at;
      return 0;
    }
  return 2;
}
int cudaFreeHost(void *at) {
  for (int i = 0; i < MOST; i++)
    if (pinned[i].start == at) pinned[i].start = NULL;
  free(at);
  return 0;
}
int cudaPointerGetAttributes(struct attributes *of, const void *at) {
  memset(of, 0, sizeof *of);
  for (int i = 0; i < MOST; i++)
    if (pinned[i].start && (char *)at - pinned[i].start >= 0 &&
        (size_t)((char *)at - pinned[i].start) < pinned[i].size) {
      of->type = HOST;
      return 0;
    }
  of->type = UNREGISTERED;
  return 0;
}

/* Streams and events: a name is enough, for nothing is ever under way. */
int cudaStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
  *stream = malloc(1);
  return 0;
}
int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = 0;
  return 0;
}
int cudaStreamGetPriority(void *stream, int *priority) { *priority = 0; return 0; }
int cudaStreamIsCapturing(void *stream, int *status) { *status = 0; return 0; }
int cudaStreamGetCaptureInfo(void *stream, int *status) { *status = 0; return 0; }
int cudaStreamGetCaptureInfo_v2(void *stream, int *status) { *status = 0; return 0; }
int cudaThreadExchangeStreamCaptureMode(int *mode) { return 0; }
int cudaEventCreateWithFlags(void **event, unsigned flags) { *event = malloc(1); return 0; }
int cudaEventDestroy(void *event) { free(event); return 0; }
int cudaEventElapsedTime(float *ms, void *from, void *to) { *ms = 0; return 0; }
SUCCEEDS(cudaSetDevice)
SUCCEEDS(cudaStreamQuery)
SUCCEEDS(cudaStreamWaitEvent)
SUCCEEDS(cudaEventRecord)
SUCCEEDS(cudaEventRecordWithFlags)
SUCCEEDS(cudaEventQuery)
SUCCEEDS(cudaGetLastError)
SUCCEEDS(cudaPeekAtLastError)

/* Where the host would wait: whoever wants to know is told. */
static void (*listener)(void);
void pretended_listen(void (*function)(void)) { listener = function; }
static int waited(void) {
  if (listener) listener();
  return 0;
}
int cudaDeviceSynchronize() { return waited(); }
int cudaStreamSynchronize(void *stream) { return waited(); }
int cudaEventSynchronize(void *event) { return waited(); }
