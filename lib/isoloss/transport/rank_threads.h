// Runs ranks as threads of this process: these are the transports `threads` and
// `shuffled`.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "isoloss/transport/transport.h"

namespace isoloss::transport {

/// Each rank has a thread, and only messages order the threads. So phases that
/// loop runs in a fixed order run in any order here, which finds races and
/// hidden orders.
///
/// The calling thread is the watchdog. If no phase ends for the deadline, the
/// call fails although threads may still be stuck in phases. Objects that those
/// phases refer to should then outlive them; the objects of this class do.
class RankThreads final : public Transport {
 public:
  enum class Order {
    kNatural,   ///< as the system schedules the threads
    kShuffled,  ///< ranks publish and begin to consume in a seeded random order
  };

  /// `name` is a literal.
  /// Errors   ConfigError if the system gives no more threads.
  RankThreads(const char* name, const TransportOptions& options, Order order);
  /// Leaves threads that are stuck in a phase to themselves.
  ~RankThreads() override;

  const char* name() const override { return name_; }
  int ranks() const override;
  RankRange local_ranks() const override { return {0, ranks()}; }
  int processes() const override { return 1; }
  int process() const override { return 0; }

  void BeginStep(int64_t step) override { step_ = step; }
  int64_t step() const override { return step_; }
  void AllToAll(const Operation& operation, const Produce& produce,
                const Expect& expect, const Consume& consume) override;
  std::span<const std::byte> AllGather(
      const Operation& operation, size_t bytes,
      const std::function<void(int rank, std::span<std::byte> mine)>& fill)
      override;
  void Abort(const std::string& reason) override;
  Counters TakeCounters() override;

 private:
  class Shared;

  void Stop();

  const char* name_;
  int64_t step_ = 0;
  uint64_t sequence_ = 0;
  std::shared_ptr<Shared> shared_;  // threads that are stuck may hold it, too
  std::vector<std::thread> threads_;
};

}  // namespace isoloss::transport
