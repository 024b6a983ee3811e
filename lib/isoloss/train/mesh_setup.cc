#include "isoloss/train/mesh_setup.h"

#include <bit>
#include <string>

#include "isoloss/base/error.h"
#include "isoloss/device/devices.h"
#include "isoloss/kernels/rowwise.h"
#include "isoloss/transport/launch.h"

namespace isoloss::train {
namespace {

/// Requires equal and valid shares for several processes.
class ShareRules {
 public:
  ShareRules(const Experiment& experiment, size_t processes)
      : experiment_(experiment),
        processes_(processes),
        hosted_(experiment.parallel.mesh.ranks / processes) {}

  void CheckRanks() const {
    const expert_parallel::Topology& mesh = experiment_.parallel.mesh;
    Require(mesh.ranks % processes_ == 0, "parallel.ranks", "ranks", mesh.ranks,
            "equally many");
    const size_t group = mesh.group_ranks();
    if (hosted_ % group == 0 || group % hosted_ == 0) return;
    ThrowError(ErrorKind::kConfig,
               "{}: each of {} processes would play {} ranks, but must play "
               "whole groups of {} (ranks / expert_data_parallel) or an equal "
               "part of one. Change the number of processes.",
               File(), processes_, hosted_, group);
  }

  /// Requires that every sum over tokens is a node of its tree.
  void CheckBatch() const {
    const size_t sequences = experiment_.train.sequences_per_batch;
    const size_t tokens = sequences * experiment_.data.sequence_length;
    constexpr const char* kTokens =
        "data.sequence_length * train.sequences_per_batch";
    constexpr const char* kTree =
        "a power of two (else their sum is no node of the tree that one "
        "process adds up)";
    Require(IsPowerOfTwo(sequences), "train.sequences_per_batch", "sequences",
            sequences, kTree);
    Require(tokens % (processes_ * kernels::kTokenLeaf) == 0, kTokens, "tokens",
            tokens, fmt::format("a multiple of {}", kernels::kTokenLeaf));
    Require(IsPowerOfTwo(tokens / kernels::kTokenLeaf), kTokens,
            "leaves of 32 tokens", tokens / kernels::kTokenLeaf, kTree);
    const size_t evaluated = experiment_.log.eval_sequences;
    Require(evaluated % processes_ == 0, "log.eval_sequences", "sequences",
            evaluated, "equally many");
  }

  void CheckExperts() const {
    const expert_parallel::Topology& mesh = experiment_.parallel.mesh;
    const model::ModelConfig& model = experiment_.model;
    const size_t values = model.num_experts / HoldersOfAGroup() *
                          model.moe_hidden_dim * model.dim;
    if (model.n_moe_layers() > 0 && HoldersOfAGroup() > 1 &&
        values % kernels::kSquaresLeaf != 0) {
      ThrowError(ErrorKind::kConfig,
                 "{}: each process would hold {} values of an expert tensor, "
                 "but with several processes they must be a multiple of {}, "
                 "the leaf of the gradient norm. Change model.moe_hidden_dim, "
                 "model.dim or the number of processes.",
                 File(), values, kernels::kSquaresLeaf);
    }
    const size_t copies = processes_ / HoldersOfAGroup();
    const size_t units = experiment_.parallel.dispatch_units;
    if (mesh.replicas > 1 &&
        (units % copies != 0 || !std::has_single_bit(units / copies))) {
      ThrowError(ErrorKind::kConfig,
                 "{}: parallel.dispatch_units is {}, but each of {} processes "
                 "that hold the same experts needs a power of two of them. "
                 "Change it or the number of processes.",
                 File(), units, copies);
    }
  }

 private:
  std::string File() const { return experiment_.path.string(); }
  /// Returns the number of processes that share one copy of the experts.
  size_t HoldersOfAGroup() const {
    const size_t group = experiment_.parallel.mesh.group_ranks();
    return hosted_ >= group ? 1 : group / hosted_;
  }
  bool IsPowerOfTwo(size_t total) const {
    return total % processes_ == 0 && std::has_single_bit(total / processes_);
  }
  void Require(bool holds, const char* key, const char* what, size_t total,
               const std::string& rule) const {
    if (holds) return;
    ThrowError(ErrorKind::kConfig,
               "{}: {} gives {} {} to {} processes, but each must get {}. "
               "Change it or the number of processes.",
               File(), key, total, what, processes_, rule);
  }

  const Experiment& experiment_;
  size_t processes_;
  size_t hosted_;  // ranks of a process
};

}  // namespace

void CheckProcesses(const Experiment& experiment, size_t processes) {
  if (processes == 1) return;
  const ShareRules rules(experiment, processes);
  rules.CheckRanks();
  rules.CheckBatch();
  rules.CheckExperts();
  if (experiment.model.tied_embeddings) {
    ThrowError(ErrorKind::kConfig,
               "{}: model.tied_embeddings is true, but with {} processes the "
               "gradients of head and embedding must be added apart. Untie "
               "them or use one process.",
               experiment.path.string(), processes);
  }
}

void CheckLaunch(const Experiment& experiment) {
  const ParallelConfig& parallel = experiment.parallel;
  if (parallel.on != device::kCpu &&
      (parallel.transport != "loop" ||
       transport::DetectLaunch().processes > 1)) {
    ThrowError(ErrorKind::kConfig,
               "{}: parallel.on is `{}` with transport `{}` and {} processes, "
               "but all ranks of a run share one device, in one process. Use "
               "transport = \"loop\", or parallel.on = \"cpu\".",
               experiment.path.string(), parallel.on, parallel.transport,
               transport::DetectLaunch().processes);
  }
  if (parallel.transport != "mpi") return;
  CheckProcesses(experiment,
                 static_cast<size_t>(transport::DetectLaunch().processes));
}

std::unique_ptr<expert_parallel::Mesh> MakeMesh(
    const Experiment& experiment, const Arm& arm,
    const std::string& reason_folder, Executor& executor,
    const TransportFactory& make_transport) {
  const ParallelConfig& parallel = experiment.parallel;
  const expert_parallel::MeshConfig config = {
      .topology = parallel.mesh,
      .options = arm.exchange.Resolved(),
      .dispatch_units = parallel.dispatch_units,
      .micro_batches = parallel.shares()};
  std::unique_ptr<transport::Transport> transport;
  // Several processes need a transport even if rows stay where they are.
  // MakeTransport also refuses processes that the chosen transport would not
  // connect.
  if (!IsLocal(config) || parallel.transport == "mpi" || make_transport ||
      transport::DetectLaunch().processes > 1) {
    if (!make_transport) CheckLaunch(experiment);
    const transport::TransportOptions options = {
        .ranks = static_cast<int>(parallel.mesh.ranks),
        .deadline_seconds = parallel.deadline_seconds,
        .shuffle_seed = parallel.shuffle_seed,
        .reason_folder = reason_folder};
    transport = make_transport
                    ? make_transport(options, executor)
                    : MakeTransport(parallel.transport, options, executor);
    CheckProcesses(experiment, static_cast<size_t>(transport->processes()));
  }
  return std::make_unique<expert_parallel::Mesh>(config, std::move(transport),
                                                 executor);
}

std::string DescribeExchange(const Experiment& experiment, const Arm& arm) {
  const expert_parallel::Topology& mesh = experiment.parallel.mesh;
  const auto algorithm = arm.exchange.options.algorithm;
  const bool by_node = algorithm == expert_parallel::Algorithm::kNode;
  const bool by_rank = algorithm == expert_parallel::Algorithm::kRank;
  std::string text = DescribeExchange(arm.exchange.Resolved());
  // The experts of a token can share a rank or a node only within one group of
  // ranks; the number of groups changes nothing.
  if (by_rank || by_node) {
    text += fmt::format(", expert_parallel = {}", mesh.group_ranks());
  }
  if (by_node) text += fmt::format(", node_ranks = {}", mesh.node_ranks());
  return text;
}

void DescribeMesh(const Experiment& experiment, const Arm& arm,
                  const expert_parallel::Mesh& mesh,
                  runlog::Provenance& provenance) {
  const expert_parallel::Topology& topology = mesh.config().topology;
  provenance.transport =
      mesh.transport() != nullptr ? mesh.transport()->name() : "none";
  provenance.processes = static_cast<int64_t>(mesh.processes());
  provenance.ranks = static_cast<int64_t>(topology.ranks);
  provenance.expert_data_parallel = static_cast<int64_t>(topology.replicas);
  provenance.ranks_per_node = static_cast<int64_t>(topology.node_ranks());
  provenance.exchange = DescribeExchange(experiment, arm);
}

}  // namespace isoloss::train
