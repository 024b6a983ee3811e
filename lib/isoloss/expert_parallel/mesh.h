// Describes the mesh of virtual ranks as one process sees it: which tokens and
// experts it holds, and what the other processes hold.
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

/// Returns true if the mesh is one rank that uses `flat` without quantisation
/// or padding, so that no row travels.
bool IsLocal(const MeshConfig& config);

/// Holds the experts [first, first + count) of the model.
struct ExpertShard {
  size_t first = 0;
  size_t count = 0;
};

class Mesh {
 public:
  /// Makes a mesh of one rank that holds all experts, with the exchange `flat`.
  Mesh(size_t experts, Executor& executor);
  /// `transport` may be null if IsLocal(config).
  Mesh(const MeshConfig& config,
       std::unique_ptr<transport::Transport> transport, Executor& executor);
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  const MeshConfig& config() const { return config_; }
  /// Returns null in a local mesh.
  transport::Transport* transport() const { return transport_.get(); }
  LayerExchanges& exchanges() { return exchanges_; }
  /// Messages and errors will name `step` from now on.
  void BeginStep(int64_t step) const {
    if (transport_ != nullptr) transport_->BeginStep(step);
  }

  /// The tokens of the following calls are `share` of the process's batch.
  void BeginShare(const BatchShare& share) { exchanges_.BeginShare(share); }
  const BatchShare& share() const { return exchanges_.share(); }
  /// Returns how many equal parts come before the share in the whole batch.
  size_t part() const { return process() * share().count + share().index; }

  size_t processes() const;
  size_t process() const;
  /// Returns the experts that this process holds in every layer.
  ExpertShard experts() const;
  /// Returns true if no lower process holds the same experts.
  bool HoldsFirstCopyOfExperts() const;
  /// Returns the first dispatch unit whose rows this process's experts get in
  /// the share.
  size_t first_unit() const;

  std::vector<size_t> AllProcesses() const;
  std::vector<size_t> ProcessesWithSameExperts() const;
  /// Returns the processes that share one copy of the experts with this
  /// process.
  std::vector<size_t> ProcessesOfGroup() const;

 private:
  size_t ProcessesPerGroup() const;

  MeshConfig config_;
  std::unique_ptr<transport::Transport> transport_;
  LayerExchanges exchanges_;
};

}  // namespace isoloss::expert_parallel
