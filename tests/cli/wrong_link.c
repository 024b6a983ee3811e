// Loaded before a program starts, it is a network that changes a bit of what
// process 1 sends, if that is long.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

// Handles are pointers in one library and integers in another: both fit.
typedef int (*Isend)(const void*, int, void*, int, int, void*, void*);

int MPI_Isend(const void* bytes, int count, void* type, int to, int tag,
              void* world, void* request) {
  const Isend send = (Isend)dlsym(RTLD_NEXT, "MPI_Isend");
  if (count > 100000) {
    char* changed = malloc(count);  // never freed: it is under way
    memcpy(changed, bytes, count);
    changed[count / 2] ^= 4;
    bytes = changed;
  }
  return send(bytes, count, type, to, tag, world, request);
}
