// The mesh of virtual ranks as one process sees it: its share of tokens and
// experts, the exchanges of its layers, and sums over processes in canonical
// order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/base/threads.h"
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
};

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
  Mesh(size_t experts, ThreadTeam& team);
  /// `transport` may be null if IsLocal(config).
  Mesh(const MeshConfig& config,
       std::unique_ptr<transport::Transport> transport, ThreadTeam& team);
  ~Mesh();
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  const MeshConfig& config() const { return config_; }
  /// Null in a local mesh.
  transport::Transport* transport() const { return transport_.get(); }
  size_t processes() const;
  size_t process() const;
  /// What this process holds of every layer's experts.
  ExpertShard experts() const;
  /// Does no lower process hold the same ones?
  bool HoldsFirstCopyOfExperts() const;
  /// The first dispatch unit whose rows they get.
  size_t first_unit() const;

  /// The exchange of the next MoE layer; `rounding` of activations. It refers
  /// to this mesh.
  std::unique_ptr<Exchange> MakeExchange(kernels::Rounding rounding);
  /// Decorates those made from now on; empty: none.
  void DecorateExchanges(ExchangeDecorator decorator) {
    decorator_ = std::move(decorator);
  }

  /// Messages and errors name `step` from now on.
  void BeginStep(int64_t step);
  /// Compares what all exchanges sent and received since the last call.
  /// Errors   TransportError that names step, layer and rank.
  void CheckConservation();

  // Over processes; without others they return what they got. Every process
  // contributes a node of the aligned tree, in the order of processes, and all
  // get the root.
  double Sum(double node);
  int64_t Sum(int64_t value);
  /// In place, FP32, element by element, gradients of replicated tensors.
  void SumReplicated(std::span<const MatrixView<float>> gradients);
  /// The same for tensors of this process's experts, over the processes that
  /// hold the same ones.
  void SumExperts(std::span<const MatrixView<float>> gradients);
  /// `mine`, equally long in every process, of all processes that share the
  /// experts among them, in the order of experts.
  std::vector<double> GatherExperts(std::span<const double> mine);
  /// `mine`, equally long in every process, of all processes, in their order.
  std::vector<double> Gather(std::span<const double> mine);
  std::vector<int32_t> Gather(std::span<const int32_t> mine);
  /// Element by element over all processes; only process 0 gets the sums.
  std::vector<int64_t> SumToFirst(std::vector<int64_t> values);
  /// The largest of all processes' codes.
  uint64_t Vote(uint64_t code);
  /// Returns when every process has come this far.
  void AwaitAll();
  /// The whole tensor of all experts from this process's rows of it. Every
  /// process gets it.
  /// Shapes   mine [local experts * r, c]; whole [experts * r, c].
  void GatherExperts(MatrixView<const float> mine, MatrixView<float> whole);
  /// Throws TransportError, naming `what`, unless all processes pass the same
  /// digest.
  void CheckReplicas(uint64_t digest, const char* what);
  /// The same for the experts' weights, among processes that hold the same
  /// ones.
  void CheckExpertReplicas(uint64_t digest);

 private:
  [[noreturn]] void ReportLoss(size_t layer, size_t source);
  [[noreturn]] void ReportReplica(const char* what, size_t process,
                                  uint64_t digest, size_t other,
                                  uint64_t others) const;
  /// Processes among which one copy of the experts is spread.
  size_t ProcessesPerGroup() const;
  std::vector<size_t> AllProcesses() const;
  std::vector<size_t> ProcessesWithSameExperts() const;
  std::vector<size_t> ProcessesOfGroup() const;
  void SumOver(std::span<const size_t> peers,
               std::span<const MatrixView<float>> gradients);
  template <typename T>
  std::vector<T> GatherScalars(T mine);
  template <typename T>
  std::vector<T> GatherFrom(transport::OpKind kind,
                            std::span<const size_t> peers,
                            std::span<const T> mine);
  std::unique_ptr<Exchange> MakePlainExchange(kernels::Rounding rounding);
  /// Every process of `peers` (this one among them) sends bytes to every other;
  /// `outgoing(i)` is for peers[i], `incoming(i)` takes what it sent.
  template <typename Outgoing, typename Incoming>
  void ExchangeWith(transport::OpKind kind, std::span<const size_t> peers,
                    const Outgoing& outgoing, const Incoming& incoming);

  MeshConfig config_;
  std::unique_ptr<transport::Transport> transport_;
  ThreadTeam& team_;
  ExchangeDecorator decorator_;
  size_t exchanges_ = 0;  // made so far
  int64_t step_ = 0;
  std::deque<Conservation> conservation_;   // one per exchange
  std::vector<uint64_t> balances_;          // [layers, V]
  std::vector<float> flat_;                 // gradients, one after another
  std::vector<std::vector<float>> slices_;  // one per peer
};

}  // namespace isoloss::expert_parallel
