// The mesh of virtual ranks as one process sees it: which tokens and experts
// are its own, and who else holds what.
//
// Sums over the mesh are in collectives.h, the check of replicas in
// replica_check.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/expert_parallel/layer_exchanges.h"
#include "isoloss/transport/transport.h"

namespace isoloss::expert_parallel {

/// One rank, flat, nothing quantised or padded: rows have nowhere to travel.
bool IsLocal(const MeshConfig& config);

/// Experts [first, first + count) of the model.
struct ExpertShard {
  size_t first = 0;
  size_t count = 0;
};

class Mesh {
 public:
  /// One rank that holds all experts, exchange `flat`.
  Mesh(size_t experts, Executor& executor);
  /// `transport` may be null if IsLocal(config).
  Mesh(const MeshConfig& config,
       std::unique_ptr<transport::Transport> transport, Executor& executor);
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  const MeshConfig& config() const { return config_; }
  /// Null in a local mesh.
  transport::Transport* transport() const { return transport_.get(); }
  LayerExchanges& exchanges() { return exchanges_; }
  /// Messages and errors name `step` from now on.
  void BeginStep(int64_t step) const {
    if (transport_ != nullptr) transport_->BeginStep(step);
  }

  size_t processes() const;
  size_t process() const;
  /// What this process holds of every layer's experts.
  ExpertShard experts() const;
  /// Does no lower process hold the same ones?
  bool HoldsFirstCopyOfExperts() const;
  /// The first dispatch unit whose rows they get.
  size_t first_unit() const;

  std::vector<size_t> AllProcesses() const;
  std::vector<size_t> ProcessesWithSameExperts() const;
  /// Among which the copy of the experts is spread that this one has a part of.
  std::vector<size_t> ProcessesOfGroup() const;

 private:
  size_t ProcessesPerGroup() const;

  MeshConfig config_;
  std::unique_ptr<transport::Transport> transport_;
  LayerExchanges exchanges_;
};

}  // namespace isoloss::expert_parallel
