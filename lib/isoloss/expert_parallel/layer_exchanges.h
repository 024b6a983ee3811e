// Makes the exchanges of a model's MoE layers and checks the invariant over all
// of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/expert_parallel/conservation.h"
#include "isoloss/expert_parallel/exchange.h"
#include "isoloss/expert_parallel/options.h"
#include "isoloss/expert_parallel/topology.h"
#include "isoloss/kernels/rounding.h"
#include "isoloss/transport/transport.h"

namespace isoloss::expert_parallel {

struct MeshConfig {
  Topology topology;
  ExchangeOptions options;
  size_t dispatch_units = 1;
  /// A process computes its part of a batch in so many shares.
  size_t micro_batches = 1;
};

class LayerExchanges {
 public:
  /// Keeps references. `transport` is null if nothing travels.
  /// Errors   ConfigError if `transport` would move rows of memory that is not
  ///          the host's, or rows of a share of a batch.
  LayerExchanges(const MeshConfig& config, transport::Transport* transport,
                 Executor& executor);

  /// Makes the exchange of the next MoE layer. `rounding` is that of
  /// activations. The exchange refers to this object.
  std::unique_ptr<Exchange> Make(kernels::Rounding rounding);
  /// Makes the next exchange that of the first MoE layer again. No exchange may
  /// be left.
  void Forget() {
    made_ = 0;
    conservation_.clear();
  }
  /// Dispatches are of `share` of the batch from now on.
  void BeginShare(const BatchShare& share) { share_ = share; }
  const BatchShare& share() const { return share_; }
  /// Decorates the exchanges made from now on; an empty function ends that.
  void Decorate(ExchangeDecorator decorator) {
    decorator_ = std::move(decorator);
  }

  /// Compares the rows that all exchanges sent and received since the last
  /// call.
  /// Errors   TransportError that names step, layer and rank.
  void CheckConservation();

  /// Returns what the transport moved since the last call, and what it would
  /// have moved if rows had not been where they were needed. The transport may
  /// not be null.
  transport::Counters TakeCounters();

 private:
  /// Returns whether a transport moves rows; otherwise they are found where
  /// they lie.
  bool RowsTravel() const;
  std::unique_ptr<Exchange> MakePlain(kernels::Rounding rounding);
  [[noreturn]] void ReportLoss(size_t layer, size_t source);

  const MeshConfig& config_;
  transport::Transport* transport_;
  Executor& executor_;
  BatchShare share_;
  ExchangeDecorator decorator_;
  size_t made_ = 0;
  std::deque<Conservation> conservation_;  // one per exchange
  transport::Counters spared_;             // messages
  std::vector<uint64_t> balances_;         // [layers, V]
};

}  // namespace isoloss::expert_parallel
