// What isoloss needs of an MPI library, as a table of C functions. MPI
// libraries differ in their binary interface, so the program links none: it
// loads the module that was compiled for the launcher's (mpi_module.cc).
#pragma once

#include <stddef.h>
#include <stdint.h>

// NOLINTBEGIN(modernize-*): a C interface.

// Big enough for the MPI_Request and MPI_Message of any library.
typedef struct IsolossMpiHandle {
  uint64_t words[2];
} IsolossMpiHandle;

// Functions return 0, or the library's error code; see error_text.
typedef struct IsolossMpiModule {
  int interface_version;
  // Starts MPI for calls of this thread alone, unless it runs already. Errors
  // are returned from now on, they do not end the process.
  int (*init)(int* index, int* size);
  // Fails if the process has ended MPI before. `text` takes 256 bytes or more.
  void (*library_version)(char* text, size_t size);
  void (*error_text)(int code, char* text, size_t size);
  int (*isend)(const void* bytes, int count, int peer, int tag,
               IsolossMpiHandle* request);
  // *done: the request is over and its buffer is free.
  int (*test)(IsolossMpiHandle* request, int* done);
  // *found: a message has arrived; mrecv then takes it, and no other.
  int (*improbe)(int* found, int* peer, int* tag, int* count,
                 IsolossMpiHandle* message);
  int (*imrecv)(void* bytes, int count, IsolossMpiHandle* message,
                IsolossMpiHandle* request);
  // Ends all processes of the job.
  void (*abort)(int exit_code);
  int (*finalize)(void);
} IsolossMpiModule;

#define ISOLOSS_MPI_INTERFACE_VERSION 1
#define ISOLOSS_MPI_MODULE_SYMBOL "isoloss_mpi_module"

// NOLINTEND(modernize-*)
