// Fills the table of mpi_module.h for the MPI library that this file is
// compiled with. It is not part of the library isoloss: each MPI library gets a
// module of its own.
#include "isoloss/transport/mpi_module.h"

#include <mpi.h>

#include <cstdio>
#include <cstring>
#include <type_traits>

namespace {

// NOLINTBEGIN(bugprone-sizeof-expression)
/// MPI's handles are pointers in one library and numbers in another.
template <typename Handle>
IsolossMpiHandle Pack(const Handle& handle) {
  static_assert(sizeof(Handle) <= sizeof(IsolossMpiHandle));
  static_assert(std::is_trivially_copyable_v<Handle>);
  IsolossMpiHandle packed{};
  std::memcpy(&packed, &handle, sizeof(handle));
  return packed;
}

template <typename Handle>
Handle Unpack(const IsolossMpiHandle& packed) {
  Handle handle;
  std::memcpy(&handle, &packed, sizeof(handle));
  return handle;
}

// NOLINTEND(bugprone-sizeof-expression)

int Init(int* index, int* size) {
  int running = 0;
  int code = MPI_Initialized(&running);
  if (code == MPI_SUCCESS && running == 0) {
    int provided = MPI_THREAD_SINGLE;
    code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
    if (code == MPI_SUCCESS && provided < MPI_THREAD_FUNNELED) {
      return MPI_ERR_OTHER;
    }
  }
  if (code != MPI_SUCCESS) return code;
  // MPI_COMM_WORLD serves, since making a communicator of our own waits for all
  // processes, without limit.
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, index);
  MPI_Comm_size(MPI_COMM_WORLD, size);
  return MPI_SUCCESS;
}

void LibraryVersion(char* text, size_t size) {
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(version, &length);
  version[std::strcspn(version, "\n")] = '\0';
  std::snprintf(text, size, "%s", version);
}

void ErrorText(int code, char* text, size_t size) {
  char message[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, message, &length);
  std::snprintf(text, size, "%s", message);
}

int Isend(const void* bytes, int count, int peer, int tag,
          IsolossMpiHandle* request) {
  MPI_Request handle = MPI_REQUEST_NULL;
  const int code =
      MPI_Isend(bytes, count, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &handle);
  *request = Pack(handle);
  return code;  // NOLINT(clang-analyzer-optin.mpi.MPI-Checker)
}

int Test(IsolossMpiHandle* request, int* done) {
  auto handle = Unpack<MPI_Request>(*request);
  const int code = MPI_Test(&handle, done, MPI_STATUS_IGNORE);
  *request = Pack(handle);
  return code;
}

int Improbe(int* found, int* peer, int* tag, int* count,
            IsolossMpiHandle* message) {
  MPI_Message handle = MPI_MESSAGE_NULL;
  MPI_Status status;
  const int code = MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD,
                               found, &handle, &status);
  if (code != MPI_SUCCESS || *found == 0) return code;
  *peer = status.MPI_SOURCE;
  *tag = status.MPI_TAG;
  *message = Pack(handle);
  return MPI_Get_count(&status, MPI_BYTE, count);
}

int Imrecv(void* bytes, int count, IsolossMpiHandle* message,
           IsolossMpiHandle* request) {
  auto handle = Unpack<MPI_Message>(*message);
  MPI_Request receive = MPI_REQUEST_NULL;
  const int code = MPI_Imrecv(bytes, count, MPI_BYTE, &handle, &receive);
  *message = Pack(handle);
  *request = Pack(receive);
  return code;
}

void Abort(int exit_code) { MPI_Abort(MPI_COMM_WORLD, exit_code); }

int Finalize() { return MPI_Finalize(); }

}  // namespace

extern "C" __attribute__((visibility("default")))
const IsolossMpiModule isoloss_mpi_module = {ISOLOSS_MPI_INTERFACE_VERSION,
                                             Init,
                                             LibraryVersion,
                                             ErrorText,
                                             Isend,
                                             Test,
                                             Improbe,
                                             Imrecv,
                                             Abort,
                                             Finalize};
