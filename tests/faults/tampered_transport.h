// A transport between the ranks and their transport that does wrong on demand:
// the faults of docs/distributed.md, "Faults", without a mutant in the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "isoloss/transport/transport.h"

namespace isoloss::faults {

/// Where a fault strikes.
struct Place {
  int64_t step = 0;  ///< 0: before the first
  transport::Operation operation;

  bool Is(int64_t at_step, transport::OpKind kind, int layer = -1) const {
    return step == at_step && operation.kind == kind &&
           operation.layer == layer;
  }
};

/// One message of an AllToAll; the payload may be changed.
struct Message {
  Place place;
  int from = 0;
  int to = 0;
  std::span<std::byte> payload;
};

/// What goes wrong. Called on the threads of the phases.
struct Faults {
  /// What a rank sends, once written; CRCs are made of what this leaves.
  std::function<void(const Message&)> on_send = {};
  /// What a rank reads, after all checks of the transport.
  std::function<void(const Message&)> on_receive = {};
  /// The extent of a message that is sent, at most the true one; no rows: none
  /// is sent.
  std::function<transport::MessageSize(const Message&, transport::MessageSize)>
      resize = {};
  /// What a rank contributes to a gather (the counts; sums of integers too).
  std::function<void(const Place&, int rank, std::span<std::byte> mine)>
      on_contribute = {};
  /// Before an operation; false: this process leaves it out.
  std::function<bool(const Place&, transport::Transport&)> take_part = {};
  /// Payloads hold NaN until they are written.
  bool poison = false;
};

class TamperedTransport final : public transport::Transport {
 public:
  TamperedTransport(std::unique_ptr<transport::Transport> inner, Faults faults)
      : inner_(std::move(inner)), faults_(std::move(faults)) {}

  const char* name() const override { return inner_->name(); }
  int ranks() const override { return inner_->ranks(); }
  transport::RankRange local_ranks() const override {
    return inner_->local_ranks();
  }
  int processes() const override { return inner_->processes(); }
  int process() const override { return inner_->process(); }
  void BeginStep(int64_t step) override { inner_->BeginStep(step); }
  int64_t step() const override { return inner_->step(); }
  void AllToAll(const transport::Operation& operation,
                const transport::Produce& produce,
                const transport::Expect& expect,
                const transport::Consume& consume) override;
  std::span<const std::byte> AllGather(
      const transport::Operation& operation, size_t bytes,
      const std::function<void(int rank, std::span<std::byte> mine)>& fill)
      override;
  void Abort(const std::string& reason) override { inner_->Abort(reason); }
  transport::Counters TakeCounters() override { return inner_->TakeCounters(); }

 private:
  bool TakesPart(const Place& place) {
    return !faults_.take_part || faults_.take_part(place, *inner_);
  }

  std::unique_ptr<transport::Transport> inner_;
  const Faults faults_;
  std::vector<std::byte> left_out_;  // what a gather that was left out returns
};

}  // namespace isoloss::faults
