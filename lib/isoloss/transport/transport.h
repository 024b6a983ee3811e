// Defines how bytes travel between the V virtual ranks of a run.
//
// A rank is a role, not a thread: this process plays the consecutive ranks
// local_ranks(), the other processes play the rest. An operation has two phases
// for every local rank: `produce` writes what the rank sends, `consume` reads
// what arrived. The transport decides which threads call the phases and in what
// order. No bit of a result may depend on that: phases of different ranks touch
// different memory.
//
// A transport carries bytes and exact integers. It has no floating-point
// reduction; those live above it, in a canonical order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/base/threads.h"
#include "isoloss/transport/operation.h"

namespace isoloss::transport {

/// The range has the ranks from `first` up to, but without, `end`.
struct RankRange {
  int first = 0;
  int end = 1;

  int size() const { return end - first; }
  bool Has(int rank) const { return rank >= first && rank < end; }
};

/// Gives the extent of one message; rows == 0 means that there is none.
struct MessageSize {
  size_t rows = 0;
  size_t bytes = 0;  ///< of the payload
};

/// One rank writes the messages of one operation here.
class Outbox {
 public:
  virtual ~Outbox() = default;
  /// Returns memory for the payload of the message to `destination`:
  /// `size.bytes`, 64-byte aligned, contents unspecified, valid until the phase
  /// ends. A rank adds at most one message per destination, in ascending order
  /// of destinations, and none with 0 rows.
  virtual std::span<std::byte> Add(int destination,
                                   const MessageSize& size) = 0;
};

/// Holds the messages that one rank received in one operation. Each was checked
/// against its header, its CRC32C and the expected size.
class Inbox {
 public:
  virtual ~Inbox() = default;
  /// Returns the payload of the message of `source`, 64-byte aligned; empty if
  /// none was expected. It is valid until the phase ends.
  virtual std::span<const std::byte> From(int source) const = 0;
};

using Produce = std::function<void(int rank, Outbox& outbox)>;
/// Fills `sizes` [V] with what `rank` will receive from each source.
using Expect = std::function<void(int rank, std::span<MessageSize> sizes)>;
using Consume = std::function<void(int rank, const Inbox& inbox)>;

/// The result of these reductions is exact and does not depend on order.
enum class Reduction { kSum, kXor, kMin, kMax };

/// Counts what this process moved since the last ResetCounters.
struct Counters {
  /// [V, V] payload bytes from row to column, for local receivers. Only
  /// operations that move rows count: for example, gradients between processes
  /// depend on how a run is executed.
  Matrix<int64_t> bytes;
  int64_t messages = 0;  ///< received, of the same operations
  /// [V] seconds that receivers of this process waited for each source are
  /// added up here.
  std::vector<double> wait_seconds;
};

/// No call lasts longer than the deadline beyond the work of its own phases.
/// Errors   All calls throw TransportError if a message is damaged, of an
///          unexpected size, of another operation (both are named), or still
///          missing at the deadline. All calls throw it once Abort was called
///          or a phase threw. Messages name step, operation, rank and peer.
///          Errors are sticky: every later call fails with the first reason.
class Transport {
 public:
  virtual ~Transport() = default;

  /// Returns "loop", "threads", "shuffled" or "mpi".
  virtual const char* name() const = 0;
  /// Returns V.
  virtual int ranks() const = 0;
  virtual RankRange local_ranks() const = 0;
  /// Returns how many processes there are, or which of them this is.
  virtual int processes() const = 0;
  virtual int process() const = 0;
  /// Returns the ranks that `process` plays: [V * p / n, V * (p + 1) / n).
  RankRange RanksOf(int process) const;

  /// Sets the step that headers and messages name from now on.
  virtual void BeginStep(int64_t step) = 0;
  virtual int64_t step() const = 0;

  /// Every rank sends to every rank; see the head of this file. `expect` must
  /// give the sizes that the senders' `produce` adds.
  virtual void AllToAll(const Operation& operation, const Produce& produce,
                        const Expect& expect, const Consume& consume) = 0;

  /// Every rank contributes `bytes` (the same number on all); returns the
  /// contributions in the order of ranks, [V * bytes], valid until the next
  /// AllGather.
  virtual std::span<const std::byte> AllGather(
      const Operation& operation, size_t bytes,
      const std::function<void(int rank, std::span<std::byte> mine)>& fill) = 0;

  /// values[i] becomes the reduction of what each rank's `fill` wrote at i.
  void AllReduce(
      const Operation& operation, Reduction reduction,
      const std::function<void(int rank, std::span<uint64_t> mine)>& fill,
      std::span<uint64_t> values);

  /// Returns when every rank has called it.
  void Barrier();

  /// Ends every waiting and later call with `reason`, here and in the other
  /// processes. The first reason stays. Any thread may call it.
  virtual void Abort(const std::string& reason) = 0;

  virtual Counters TakeCounters() = 0;
};

inline constexpr int kMaxRanks = 1024;

/// All transports have these options.
struct TransportOptions {
  int ranks = 1;
  /// One operation waits at most this long. Tests of slow ranks shorten it.
  double deadline_seconds = 60;
  /// `shuffled` draws the order in which messages arrive from this seed.
  uint64_t shuffle_seed = 0;
  /// If this process ends the job, `mpi` writes a file with the reason to this
  /// folder, as the launcher may lose the exit code. If it is empty, there is
  /// no file.
  std::string reason_folder = {};
  /// Tests set it. It is called on each sealed message (header and payload),
  /// and its changes are damage on the wire.
  std::function<void(int source, int destination, std::span<std::byte> message)>
      damage = {};
};

/// Returns the names of all transports of this build, in the order of
/// transports.def.
std::vector<std::string> TransportNames();

/// Makes the transport `name`. `team` runs the phases of `loop` and `mpi`; it
/// must outlive the transport.
/// Errors   ConfigError if there is no such transport; if the number of ranks
///          is not a multiple of the number of processes; or if a launcher
///          started several processes but `name` runs in one (or the other way
///          round). TransportError if MPI does not start.
std::unique_ptr<Transport> MakeTransport(const std::string& name,
                                         const TransportOptions& options,
                                         ThreadTeam& team);

}  // namespace isoloss::transport
