#include "isoloss/expert_parallel/mesh.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "isoloss/base/error.h"

namespace isoloss::expert_parallel {

bool IsLocal(const MeshConfig& config) {
  const ExchangeOptions& options = config.options;
  return config.topology.ranks == 1 && config.dispatch_units == 1 &&
         options.algorithm == Algorithm::kFlat &&
         options.weight_site == WeightSite::kSource &&
         options.payload == "unquantized" &&
         options.gradient_payload == "unquantized" && options.padding == 1;
}

Mesh::Mesh(size_t experts, Executor& executor)
    : Mesh({.topology = {.experts = experts}, .options = {}}, nullptr,
           executor) {}

Mesh::Mesh(const MeshConfig& config,
           std::unique_ptr<transport::Transport> transport, Executor& executor)
    : config_(config),
      transport_(std::move(transport)),
      exchanges_(config_, transport_.get(), executor) {
  ISOLOSS_ASSERT(transport_ != nullptr || IsLocal(config));
  if (transport_ != nullptr) {
    ISOLOSS_ASSERT(static_cast<size_t>(transport_->ranks()) ==
                   config.topology.ranks);
  }
}

size_t Mesh::processes() const {
  return transport_ ? static_cast<size_t>(transport_->processes()) : 1;
}

size_t Mesh::process() const {
  return transport_ ? static_cast<size_t>(transport_->process()) : 0;
}

size_t Mesh::ProcessesPerGroup() const {
  const size_t hosted = config_.topology.ranks / processes();
  return std::max<size_t>(1, config_.topology.group_ranks() / hosted);
}

ExpertShard Mesh::experts() const {
  const size_t count = config_.topology.experts / ProcessesPerGroup();
  return {process() % ProcessesPerGroup() * count, count};
}

bool Mesh::HoldsFirstCopyOfExperts() const {
  return process() < ProcessesPerGroup();
}

size_t Mesh::first_unit() const {
  const Topology& topology = config_.topology;
  const size_t first_rank = process() * (topology.ranks / processes());
  return first_rank / topology.group_ranks() *
             (config_.dispatch_units / topology.replicas) +
         share().Begin(config_.dispatch_units);
}

std::vector<size_t> Mesh::AllProcesses() const {
  std::vector<size_t> all(processes());
  std::iota(all.begin(), all.end(), size_t{0});
  return all;
}

std::vector<size_t> Mesh::ProcessesWithSameExperts() const {
  const size_t of_group = ProcessesPerGroup();
  std::vector<size_t> peers;
  for (size_t p = process() % of_group; p < processes(); p += of_group) {
    peers.push_back(p);
  }
  return peers;
}

std::vector<size_t> Mesh::ProcessesOfGroup() const {
  const size_t of_group = ProcessesPerGroup();
  std::vector<size_t> peers(of_group);
  std::iota(peers.begin(), peers.end(), process() / of_group * of_group);
  return peers;
}

}  // namespace isoloss::expert_parallel
