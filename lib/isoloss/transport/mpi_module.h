// Declares what isoloss needs of an MPI library, as a table of C functions. MPI
// libraries differ in their binary interface, so the program links none. It
// loads the module that was compiled for the launcher's library
// (mpi_module.cc).
#pragma once

#include <stddef.h>
#include <stdint.h>

// NOLINTBEGIN(modernize-*): a C interface.

// The handle must hold the MPI_Request and MPI_Message of any library.
typedef struct IsolossMpiHandle {
  uint64_t words[2];
} IsolossMpiHandle;

// Functions return 0, or the library's error code; see error_text.
typedef struct IsolossMpiModule {
  int interface_version;
  // Starts MPI for calls of this thread alone, unless MPI runs already. From
  // then on MPI returns errors instead of ending the process.
  int (*init)(int* index, int* size);
  // Fails if the process has ended MPI before. `text` takes 256 bytes or more.
  void (*library_version)(char* text, size_t size);
  void (*error_text)(int code, char* text, size_t size);
  int (*isend)(const void* bytes, int count, int peer, int tag,
               IsolossMpiHandle* request);
  // *done means that the request is over and its buffer is free.
  int (*test)(IsolossMpiHandle* request, int* done);
  // *found means that a message has arrived; imrecv then takes that message.
  int (*improbe)(int* found, int* peer, int* tag, int* count,
                 IsolossMpiHandle* message);
  int (*imrecv)(void* bytes, int count, IsolossMpiHandle* message,
                IsolossMpiHandle* request);
  // Makes MPI end all processes of the job.
  void (*abort)(int exit_code);
  int (*finalize)(void);
} IsolossMpiModule;

#define ISOLOSS_MPI_INTERFACE_VERSION 1
#define ISOLOSS_MPI_MODULE_SYMBOL "isoloss_mpi_module"

// NOLINTEND(modernize-*)
