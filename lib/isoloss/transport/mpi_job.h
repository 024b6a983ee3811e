// Holds this process's part in an MPI job. There is at most one per process, as
// MPI can be started and ended only once.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "isoloss/transport/call_watch.h"
#include "isoloss/transport/link.h"
#include "isoloss/transport/mpi_module.h"
#include "isoloss/transport/transport.h"

namespace isoloss::transport {

/// A parcel is an MPI message, whose tag says whether more follow.
class MpiLink final : public Link {
 public:
  /// `watch` learns of a call that does not return.
  MpiLink(const IsolossMpiModule& mpi, CallWatch& watch, int index, int size)
      : mpi_(mpi), watch_(watch), index_(index), size_(size) {}

  int index() const override { return index_; }
  int size() const override { return size_; }
  /// The limit exists because MPI counts in int.
  size_t most_parcel_bytes() const override { return size_t{1} << 30; }
  void Post(int peer, bool more, std::span<const std::byte> bytes,
            int* outstanding) override;
  bool Poll(Parcel& parcel) override;

 private:
  struct Send {
    IsolossMpiHandle request;
    int* outstanding;
  };
  struct Receive {
    IsolossMpiHandle request;
    bool done;
    Parcel parcel;
  };

  bool IsOver(IsolossMpiHandle& request);
  void BeginReceive();
  void CheckCode(int code, const char* call) const;

  const IsolossMpiModule& mpi_;
  CallWatch& watch_;
  const int index_;
  const int size_;
  std::vector<Send> sends_;
  std::deque<Receive> receives_;  // in the order in which messages arrived
  std::vector<Matrix<std::byte>> spare_;
};

/// Starts MPI on the first call, with the library of the launcher.
/// Errors   ConfigError if there is no module for that library;
///          TransportError if MPI does not start, or sees other processes than
///          the launcher started.
MpiLink& JoinMpiJob(const TransportOptions& options);

/// Returns 1, 2, …: the same in all processes, as they make the same
/// transports.
uint64_t NextMpiRun();

/// Describes a module of this build, and whether its MPI library is installed.
struct MpiModuleState {
  std::string launcher;      ///< as DetectLaunch names it
  std::string version = {};  ///< what the library says of itself
  std::string error = {};    ///< why it does not load; "" if it does
};

/// Loads each module of this build, and starts no MPI.
std::vector<MpiModuleState> ExamineMpiModules();

}  // namespace isoloss::transport
