#include "isoloss/train/mesh_setup.h"

#include <bit>
#include <numeric>

#include "isoloss/base/error.h"
#include "isoloss/kernels/rowwise.h"
#include "isoloss/transport/launch.h"

namespace isoloss::train {
namespace {

/// One rule about what each of several processes gets.
class ShareRules {
 public:
  ShareRules(const Experiment& experiment, size_t processes)
      : file_(experiment.path.string()), processes_(processes) {}

  void PowerOfTwo(const char* key, const char* what, size_t total) const {
    if (total % processes_ == 0 && std::has_single_bit(total / processes_)) {
      return;
    }
    Fail(key, what, total, "a power of two");
  }
  void Multiple(const char* key, const char* what, size_t total,
                size_t of) const {
    if (total % processes_ == 0 && total / processes_ % of == 0) return;
    Fail(key, what, total, fmt::format("a multiple of {}", of));
  }

 private:
  [[noreturn]] void Fail(const char* key, const char* what, size_t total,
                         const std::string& rule) const {
    ThrowError(ErrorKind::kConfig,
               "{}: {} gives {} {} to {} processes, but each must get {} of "
               "them: only then is every sum over processes a node of the "
               "tree that one process adds up. Change it or the number of "
               "processes.",
               file_, key, total, what, processes_, rule);
  }

  std::string file_;
  size_t processes_;
};

}  // namespace

void CheckProcesses(const Experiment& experiment, size_t processes) {
  if (processes == 1) return;
  const expert_parallel::Topology& mesh = experiment.parallel.mesh;
  const model::ModelConfig& model = experiment.model;
  const ShareRules rules(experiment, processes);
  rules.Multiple("parallel.ranks", "ranks", mesh.ranks, 1);
  const size_t hosted = mesh.ranks / processes;
  if (hosted % mesh.group_ranks() != 0 && mesh.group_ranks() % hosted != 0) {
    ThrowError(ErrorKind::kConfig,
               "{}: each of {} processes would play {} ranks, but must play "
               "whole groups of {} (ranks / expert_data_parallel) or an equal "
               "part of one. Change the number of processes.",
               experiment.path.string(), processes, hosted, mesh.group_ranks());
  }
  const size_t sequences = experiment.train.sequences_per_batch;
  rules.PowerOfTwo("train.sequences_per_batch", "sequences", sequences);
  rules.Multiple("data.sequence_length * train.sequences_per_batch", "tokens",
                 sequences * experiment.data.sequence_length,
                 kernels::kTokenLeaf);
  rules.PowerOfTwo(
      "data.sequence_length * train.sequences_per_batch", "leaves of 32 tokens",
      sequences * experiment.data.sequence_length / kernels::kTokenLeaf);
  rules.Multiple("log.eval_sequences", "sequences",
                 experiment.log.eval_sequences, 1);
  if (model.n_moe_layers() > 0 && hosted < mesh.group_ranks()) {
    const size_t holders = mesh.group_ranks() / hosted;
    const size_t values =
        model.num_experts / holders * model.moe_hidden_dim * model.dim;
    if (values % kernels::kSquaresLeaf != 0) {
      ThrowError(ErrorKind::kConfig,
                 "{}: each process would hold {} values of an expert tensor, "
                 "but with several processes they must be a multiple of {}, "
                 "the leaf of the gradient norm. Change model.moe_hidden_dim, "
                 "model.dim or the number of processes.",
                 experiment.path.string(), values, kernels::kSquaresLeaf);
    }
  }
  if (mesh.replicas > 1) {
    const size_t holders = std::max<size_t>(1, mesh.group_ranks() / hosted);
    const size_t peers = processes / holders;
    if (experiment.parallel.dispatch_units % peers != 0 ||
        !std::has_single_bit(experiment.parallel.dispatch_units / peers)) {
      ThrowError(ErrorKind::kConfig,
                 "{}: parallel.dispatch_units is {}, but each of {} processes "
                 "that hold the same experts needs a power of two of them.",
                 experiment.path.string(), experiment.parallel.dispatch_units,
                 peers);
    }
  }
  if (model.tied_embeddings) {
    ThrowError(ErrorKind::kConfig,
               "{}: model.tied_embeddings is true, but with {} processes the "
               "gradients of head and embedding must be added apart. Untie "
               "them or use one process.",
               experiment.path.string(), processes);
  }
}

std::unique_ptr<expert_parallel::Mesh> MakeMesh(
    const Experiment& experiment, const Arm& arm,
    const std::string& reason_folder, ThreadTeam& team,
    const TransportFactory& make_transport) {
  const ParallelConfig& parallel = experiment.parallel;
  const expert_parallel::MeshConfig config = {
      .topology = parallel.mesh,
      .options = arm.exchange.Resolved(),
      .dispatch_units = parallel.dispatch_units};
  std::unique_ptr<transport::Transport> transport;
  const transport::Launch launch = transport::DetectLaunch();
  // Several processes need a transport even where rows stay where they are; and
  // MakeTransport refuses those that another transport would not connect.
  if (!IsLocal(config) || parallel.transport == "mpi" || make_transport ||
      launch.processes > 1) {
    // Before MPI starts, so that a mistake is no crash of a job.
    CheckProcesses(experiment, static_cast<size_t>(launch.processes));
    const transport::TransportOptions options = {
        .ranks = static_cast<int>(parallel.mesh.ranks),
        .deadline_seconds = parallel.deadline_seconds,
        .shuffle_seed = parallel.shuffle_seed,
        .reason_folder = reason_folder};
    transport = make_transport
                    ? make_transport(options, team)
                    : MakeTransport(parallel.transport, options, team);
    CheckProcesses(experiment, static_cast<size_t>(transport->processes()));
  }
  return std::make_unique<expert_parallel::Mesh>(config, std::move(transport),
                                                 team);
}

}  // namespace isoloss::train
