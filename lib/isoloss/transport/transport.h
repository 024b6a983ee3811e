// How bytes travel between the V virtual ranks of a run.
//
// A rank is a role, not a thread: this process plays the consecutive ranks
// local_ranks(), the other processes play the rest. An operation has two phases
// for every local rank: `produce` writes what the rank sends, `consume` reads
// what arrived. Who calls them, on how many threads and in what order is the
// transport's business, and no bit of a result may depend on it: phases of
// different ranks touch different memory.
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

#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"
#include "isoloss/transport/operation.h"

namespace isoloss::transport {

/// Ranks [first, end).
struct RankRange {
  int first = 0;
  int end = 1;

  int size() const { return end - first; }
  bool Has(int rank) const { return rank >= first && rank < end; }
};

/// Extent of one message; rows == 0: there is none.
struct MessageSize {
  size_t rows = 0;
  size_t bytes = 0;  ///< of the payload
};

/// Where one rank writes the messages of one operation.
class Outbox {
 public:
  virtual ~Outbox() = default;
  /// Memory for the payload of the message to `destination`: `size.bytes`,
  /// 64-byte aligned, contents unspecified, valid until the phase ends. At most
  /// one message per destination, destinations ascending; none with 0 rows.
  virtual std::span<std::byte> Add(int destination,
                                   const MessageSize& size) = 0;
};

/// What one rank received in one operation: checked against its header, its
/// CRC32C and the expected size.
class Inbox {
 public:
  virtual ~Inbox() = default;
  /// Payload of the message of `source`, 64-byte aligned; empty if none was
  /// expected. Valid until the phase ends.
  virtual std::span<const std::byte> From(int source) const = 0;
};

using Produce = std::function<void(int rank, Outbox& outbox)>;
/// Fills `sizes` [V] with what `rank` will receive from each source.
using Expect = std::function<void(int rank, std::span<MessageSize> sizes)>;
using Consume = std::function<void(int rank, const Inbox& inbox)>;

/// Exact reductions that do not depend on order.
enum class Reduction { kSum, kXor, kMin, kMax };

/// What was moved since the last ResetCounters, by this process.
struct Counters {
  /// [V, V] payload bytes from row to column, for local receivers, of
  /// operations that move rows; gradients between processes, for one, depend on
  /// how a run is executed.
  Matrix<int64_t> bytes;
  int64_t messages = 0;  ///< received, of the same operations
  /// [V] seconds that receivers of this process waited for each source.
  std::vector<double> wait_seconds;
};

/// Errors of all calls: TransportError once a message is damaged, missing when
/// the deadline is over, of an unexpected size, or of another operation (both
/// are named), and for everybody once Abort was called or a phase threw.
/// Messages name step, operation, rank and peer. Errors are sticky: every later
/// call fails with the first reason. No call lasts longer than the deadline
/// beyond the work of its own phases.
class Transport {
 public:
  virtual ~Transport() = default;

  /// "loop", "threads", "shuffled" or "mpi".
  virtual const char* name() const = 0;
  /// V.
  virtual int ranks() const = 0;
  virtual RankRange local_ranks() const = 0;
  /// How many processes there are, and which of them this is.
  virtual int processes() const = 0;
  virtual int process() const = 0;
  /// Ranks that `process` plays: [V * p / n, V * (p + 1) / n).
  RankRange RanksOf(int process) const;

  /// The step that headers and messages name from now on.
  virtual void BeginStep(int64_t step) = 0;
  virtual int64_t step() const = 0;

  /// Every rank sends to every rank; see the head of this file. Sizes that
  /// `expect` gives must be those that the senders' `produce` adds.
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
  /// processes. Idempotent (the first reason stays); callable from any thread.
  virtual void Abort(const std::string& reason) = 0;

  virtual Counters TakeCounters() = 0;
};

inline constexpr int kMaxRanks = 1024;

/// Options of all transports.
struct TransportOptions {
  int ranks = 1;
  /// Longest wait of one operation, and what tests of slow ranks shorten.
  double deadline_seconds = 60;
  /// Seed of `shuffled`: the order in which messages are seen to arrive.
  uint64_t shuffle_seed = 0;
  /// `mpi`: folder that takes a file with the reason if this process ends the
  /// job (the launcher's exit code may lose it); empty: none.
  std::string reason_folder = {};
  /// For tests: called on each sealed message (header and payload). What it
  /// changes is damage on the wire.
  std::function<void(int source, int destination, std::span<std::byte> message)>
      damage = {};
};

/// Names of all transports of this build, in the order of transports.def.
std::vector<std::string> TransportNames();

/// Errors   ConfigError if there is no such transport, if the number of ranks
///          is not a multiple of the number of processes, or if this process
///          was started by a launcher of several processes but `name` runs in
///          one (or the other way round); TransportError if MPI does not start.
/// `executor` runs the phases of `loop` and `mpi`; it must outlive the
/// transport.
std::unique_ptr<Transport> MakeTransport(const std::string& name,
                                         const TransportOptions& options,
                                         Executor& executor);

}  // namespace isoloss::transport
