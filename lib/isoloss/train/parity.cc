#include "isoloss/train/parity.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/transport/launch.h"
#include "isoloss/transport/process_transport.h"

namespace isoloss::train {
namespace {

using transport::Transport;

double Norm(std::span<const float> values) {
  double squares = 0;
  for (const float value : values) {
    squares += static_cast<double>(value) * static_cast<double>(value);
  }
  return std::sqrt(squares);
}

std::span<const float> ValuesOf(const model::Parameter& parameter) {
  return {parameter.values.data(), parameter.values.size()};
}

/// Returns a gradient's place on the way from the head down: smaller means
/// earlier. Inside a block the order is routed experts, router, shared experts
/// or dense feed-forward, its norm, attention, its norm.
std::tuple<int, int> PlaceOf(const std::string& name, size_t layers) {
  const auto blocks = static_cast<int>(layers);
  if (!name.starts_with("layers.")) {
    return {name.starts_with("tok_embeddings") ? blocks + 2
            : name.starts_with("norm")         ? 1
                                               : 0,
            0};
  }
  constexpr const char* kOrder[] = {"moe.routed_experts.", "moe.router.",
                                    "moe.shared_experts.", "feed_forward.",
                                    "ffn_norm.",           "attention.",
                                    "attention_norm."};
  const size_t dot = name.find('.', std::strlen("layers."));
  const std::string inside = name.substr(dot + 1);
  const auto stage = std::find_if(
      std::begin(kOrder), std::end(kOrder),
      [&](const char* prefix) { return inside.starts_with(prefix); });
  const int layer = std::stoi(name.substr(std::strlen("layers.")));
  return {1 + blocks - layer, static_cast<int>(stage - std::begin(kOrder))};
}

/// Returns the indices of a set's parameters in the order in which their
/// gradients are computed.
std::vector<size_t> BackwardOrder(const model::ModelConfig& config) {
  const model::ParameterSet set(config);
  std::vector<size_t> order(set.parameters().size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = order.size() - 1 - i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return PlaceOf(set.parameters()[a].name, config.n_layers) <
           PlaceOf(set.parameters()[b].name, config.n_layers);
  });
  return order;
}

/// Numbers everything that a step computes, in order.
class Places {
 public:
  explicit Places(const model::ModelConfig& config)
      : names_(config),
        order_(BackwardOrder(config)),
        layers_(config.n_moe_layers()) {}

  size_t tensors() const { return order_.size(); }
  size_t parameter(size_t place) const { return order_[place]; }

  uint64_t Tokens(int64_t step, size_t layer) const { return At(step, layer); }
  uint64_t Loss(int64_t step) const { return At(step, layers_); }
  uint64_t Gradient(int64_t step, size_t place) const {
    return At(step, layers_ + 1 + place);
  }
  uint64_t GradientNorm(int64_t step) const {
    return At(step, layers_ + 1 + tensors());
  }
  uint64_t Bias(int64_t step, size_t layer) const {
    return At(step, layers_ + 2 + tensors() + layer);
  }
  uint64_t Weight(int64_t step, size_t place) const {
    return At(step, 2 * layers_ + 2 + tensors() + place);
  }

  ParityDifference Name(uint64_t place) const {
    ParityDifference difference;
    difference.step = static_cast<int64_t>(place / PerStep());
    size_t at = place % PerStep();
    const auto within = [&at](size_t count) {
      if (at < count) return true;
      at -= count;
      return false;
    };
    const auto tensor = [&](const char* of) {
      difference.of_tensor = true;
      difference.what = of + names_.parameters()[order_[at]].name;
    };
    if (within(layers_)) {
      difference.what = fmt::format("tokens per expert of MoE layer {}", at);
    } else if (within(1)) {
      difference.what = "loss";
    } else if (within(tensors())) {
      tensor("gradient of ");
    } else if (within(1)) {
      difference.what = "gradient norm";
    } else if (within(layers_)) {
      difference.what = fmt::format("expert biases of MoE layer {}", at);
    } else {
      tensor("updated ");
    }
    return difference;
  }

 private:
  uint64_t PerStep() const { return 2 * (layers_ + 1 + tensors()); }
  uint64_t At(int64_t step, size_t index) const {
    return static_cast<uint64_t>(step) * PerStep() + index;
  }

  model::ParameterSet names_;
  std::vector<size_t> order_;
  size_t layers_;
};

/// Processes tell each other of a difference in this form.
struct Found {
  uint64_t place = std::numeric_limits<uint64_t>::max();
  double one_rank = 0;
  double meshed = 0;

  bool any() const { return place != std::numeric_limits<uint64_t>::max(); }
};

/// Holds the results of the run on one rank.
struct Reference {
  std::vector<std::vector<std::vector<float>>> gradients;  // [steps, tensors]
  std::vector<std::vector<float>> weights;                 // after the last
  std::vector<runlog::StepRow> rows;
  runlog::MoeColumns moe;
};

std::vector<std::vector<float>> CopyOf(const model::ParameterSet& set) {
  std::vector<std::vector<float>> copy;
  for (const model::Parameter& parameter : set.parameters()) {
    const auto values = ValuesOf(parameter);
    copy.emplace_back(values.begin(), values.end());
  }
  return copy;
}

/// Lets a run end after `steps` steps, or when the caller's flag says so.
class Limit {
 public:
  Limit(int64_t steps, const std::atomic<bool>* stop)
      : steps_(steps), stop_(stop) {}
  void AfterStep(int64_t step) {
    interrupted_ = stop_ != nullptr && stop_->load();
    ended_ = step >= steps_ || interrupted_;
  }
  const std::atomic<bool>* flag() const { return &ended_; }
  bool interrupted() const { return interrupted_; }

 private:
  int64_t steps_;
  const std::atomic<bool>* stop_;
  std::atomic<bool> ended_{false};
  bool interrupted_ = false;
};

Experiment OnOneRank(const Experiment& experiment) {
  Experiment one = experiment;
  one.parallel.mesh.ranks = 1;
  one.parallel.mesh.replicas = 1;
  one.parallel.transport = "loop";
  return one;
}

Reference RunReference(const Experiment& experiment, const Arm& arm,
                       uint64_t seed, const corpus::Corpus& corpus,
                       Executor& executor, int64_t steps,
                       const RunHooks& caller, Limit& limit) {
  Reference reference;
  RunHooks hooks;
  hooks.edit_initial_weights = caller.edit_initial_weights;
  hooks.stop = limit.flag();
  hooks.on_step = [&](const runlog::StepRow& row) {
    reference.rows.push_back(row);
    limit.AfterStep(row.step);
  };
  hooks.before_update = [&](int64_t, const model::ParameterSet& gradients) {
    reference.gradients.push_back(CopyOf(gradients));
  };
  hooks.after_update = [&](int64_t step, const model::ParameterSet& weights,
                           MatrixView<float>) {
    if (step == steps) reference.weights = CopyOf(weights);
  };
  // A launcher's further processes make the same run, each for itself.
  if (transport::DetectLaunch().processes > 1) {
    hooks.make_transport = [](const transport::TransportOptions& options,
                              Executor& phases) {
      return std::make_unique<transport::ProcessTransport>(
          "loop", options, phases, /*run_id=*/0, /*link=*/nullptr);
    };
  }
  const Experiment one = OnOneRank(experiment);
  reference.moe = TrainRun(one, arm, seed, corpus, executor, hooks).moe;
  return reference;
}

/// Compares the run on the mesh while it takes place.
class Comparison {
 public:
  Comparison(const model::ModelConfig& config, const Reference& reference)
      : places_(config), reference_(reference) {}

  const Places& places() const { return places_; }

  void Gradients(int64_t step, const model::ParameterSet& gradients) {
    const auto number = static_cast<size_t>(step) - 1;
    if (number >= reference_.gradients.size()) return;
    for (size_t place = 0; place < places_.tensors(); ++place) {
      Tensor(places_.Gradient(step, place),
             gradients.parameters()[places_.parameter(place)],
             reference_.gradients[number][places_.parameter(place)]);
    }
  }
  void Weights(int64_t step, const model::ParameterSet& weights) {
    for (size_t place = 0; place < places_.tensors(); ++place) {
      Tensor(places_.Weight(step, place),
             weights.parameters()[places_.parameter(place)],
             reference_.weights[places_.parameter(place)]);
    }
  }
  void Row(const runlog::StepRow& row) {
    const auto number = static_cast<size_t>(row.step) - 1;
    if (number >= reference_.rows.size()) return;
    const runlog::StepRow& one = reference_.rows[number];
    Number(places_.Loss(row.step), one.loss_nats, row.loss_nats);
    Number(places_.GradientNorm(row.step), one.grad_norm, row.grad_norm);
    ++steps_;
  }
  /// Compares tokens per expert and biases, which only logs hold.
  void Moe(const runlog::MoeColumns& moe) {
    const auto experts = static_cast<size_t>(moe.experts);
    const auto layers = static_cast<size_t>(moe.layers);
    const size_t values = std::min(moe.tokens_per_expert.size(),
                                   reference_.moe.tokens_per_expert.size());
    for (size_t i = 0; i < values; ++i) {
      const int64_t step = moe.step[i / experts / layers];
      const size_t layer = i / experts % layers;
      Number(places_.Tokens(step, layer),
             static_cast<double>(reference_.moe.tokens_per_expert[i]),
             static_cast<double>(moe.tokens_per_expert[i]));
      Number(places_.Bias(step, layer), reference_.moe.expert_bias[i],
             moe.expert_bias[i]);
    }
  }
  /// Tells all processes the first difference of any process. Collective.
  void Share(Transport& mesh) {
    const auto table =
        mesh.AllGather({transport::OpKind::kScalars}, sizeof(Found),
                       [&](int, std::span<std::byte> mine) {
                         std::memcpy(mine.data(), &first_, sizeof(Found));
                       });
    first_ = {};
    for (int process = 0; process < mesh.processes(); ++process) {
      const auto rank = static_cast<size_t>(mesh.RanksOf(process).first);
      Found theirs;
      std::memcpy(&theirs, &table[rank * sizeof(Found)], sizeof(Found));
      if (theirs.place >= first_.place) continue;
      first_ = theirs;
      process_ = static_cast<size_t>(process);
    }
  }

  void FillIn(ParityReport& report) const {
    report.steps = steps_;
    report.gradients = places_.tensors();
    if (!first_.any()) return;
    report.first = places_.Name(first_.place);
    report.first->one_rank = first_.one_rank;
    report.first->meshed = first_.meshed;
    report.first->process = process_;
  }
  void SetProcess(size_t process) { process_ = process; }

 private:
  void Keep(const Found& found) {
    if (found.place < first_.place) first_ = found;
  }
  void Number(uint64_t place, double one_rank, double meshed) {
    if (std::bit_cast<uint64_t>(one_rank) != std::bit_cast<uint64_t>(meshed)) {
      Keep({place, one_rank, meshed});
    }
  }
  /// Compares a tensor; this process may hold only a part of a tensor of
  /// experts.
  void Tensor(uint64_t place, const model::Parameter& mine,
              std::span<const float> whole) {
    const auto values = ValuesOf(mine);
    const auto due = whole.subspan(mine.first_element, values.size());
    if (std::memcmp(values.data(), due.data(), values.size_bytes()) != 0) {
      Keep({place, Norm(due), Norm(values)});
    }
  }

  Places places_;
  const Reference& reference_;
  Found first_;
  size_t process_ = 0;
  int64_t steps_ = 0;
};

/// Returns the caller's hooks, each followed by what the comparison needs.
RunHooks Watch(const RunHooks& hooks, const Experiment& experiment,
               int64_t steps, Comparison& comparison, Limit& limit,
               Transport*& mesh) {
  RunHooks watched = hooks;
  watched.stop = limit.flag();
  watched.make_transport = [&](const transport::TransportOptions& options,
                               Executor& executor) {
    auto made = hooks.make_transport
                    ? hooks.make_transport(options, executor)
                    : transport::MakeTransport(experiment.parallel.transport,
                                               options, executor);
    mesh = made.get();
    comparison.SetProcess(static_cast<size_t>(made->process()));
    return made;
  };
  watched.before_update = [&](int64_t step, model::ParameterSet& gradients) {
    if (hooks.before_update) hooks.before_update(step, gradients);
    comparison.Gradients(step, gradients);
  };
  watched.after_update = [&, steps](int64_t step, model::ParameterSet& weights,
                                    MatrixView<float> bias) {
    if (hooks.after_update) hooks.after_update(step, weights, bias);
    if (step == steps) comparison.Weights(step, weights);
  };
  watched.on_step = [&](const runlog::StepRow& row) {
    if (hooks.on_step) hooks.on_step(row);
    comparison.Row(row);
    comparison.Share(*mesh);
    limit.AfterStep(row.step);
  };
  return watched;
}

void CheckComparable(const Experiment& experiment, const Arm& arm) {
  using expert_parallel::Algorithm;
  if (experiment.parallel.mesh.ranks == 1) {
    ThrowError(ErrorKind::kConfig,
               "{}: parallel.ranks is 1, so there is nothing to compare with a "
               "run on one rank. Give --set parallel.ranks=8, or another "
               "number that divides the experts.",
               experiment.path.string());
  }
  const auto options = arm.exchange.Resolved();
  if (options.algorithm != Algorithm::kRank &&
      options.algorithm != Algorithm::kNode) {
    return;
  }
  ThrowError(ErrorKind::kConfig,
             "{}: arm {} has {}, which rounds once per rank and node, so its "
             "bits depend on the number of ranks by design, but parity "
             "compares {} ranks with one to the bit. Compare the mesh itself "
             "with exchange flat or titan_bf16.",
             experiment.path.string(), arm.name, DescribeExchange(options),
             experiment.parallel.mesh.ranks);
}

}  // namespace

std::string ParityDifference::Describe() const {
  if (!of_tensor) {
    return fmt::format("{} at step {}: {:.9g}, but with one rank {:.9g}", what,
                       step, meshed, one_rank);
  }
  const double ratio = meshed / one_rank;
  const std::string text = fmt::format("{} at step {}: norm ", what, step);
  if (one_rank == 0) return text + fmt::format("{:.4g}, not 0", meshed);
  if (meshed == one_rank) return text + "equals that of one rank, not its bits";
  // Four digits identify a factor; a wrong last bit needs more digits.
  const bool close = std::fabs(ratio - 1) < 5e-5;
  return text + (close
                     ? fmt::format("(1 {:+.3g}) x that of one rank", ratio - 1)
                     : fmt::format("{:.4f} x that of one rank", ratio));
}

std::string ParityReport::Verdict() const {
  constexpr const char* kIndent = "                      ";
  std::string text =
      first ? fmt::format("FAIL  parity          {}\n", first->Describe())
            : fmt::format(
                  "PASS  parity          every bit of {} {} is that of one rank"
                  "\n",
                  steps, steps == 1 ? "step" : "steps");
  text += fmt::format(
      "{}(arm {}, seed {}: {} ranks in {} expert-parallel {}, transport {} "
      "over {} {};\n",
      kIndent, arm, seed, ranks, replicas, replicas == 1 ? "group" : "groups",
      transport, processes, processes == 1 ? "process" : "processes");
  if (!first) {
    return text + fmt::format(
                      "{}tokens per expert, losses, {} gradients a step, their "
                      "norms, biases, weights)\n",
                      kIndent, gradients);
  }
  text += fmt::format(
      "{}{:.9g} in process {}, {:.9g} with one rank; what is computed before "
      "is equal)\n",
      kIndent, first->meshed, first->process, first->one_rank);
  return text +
         "      next: docs/distributed.md says which fault shows where\n";
}

ParityReport CompareWithOneRank(const Experiment& experiment, const Arm& arm,
                                uint64_t seed, const corpus::Corpus& corpus,
                                Executor& executor, int64_t steps,
                                const RunHooks& hooks) {
  CheckComparable(experiment, arm);
  steps = std::min(steps, experiment.train.steps);
  ParityReport report;
  report.arm = arm.name;
  report.seed = seed;
  report.ranks = experiment.parallel.mesh.ranks;
  report.replicas = experiment.parallel.mesh.replicas;

  Limit first_limit(steps, hooks.stop);
  const Reference reference = RunReference(experiment, arm, seed, corpus,
                                           executor, steps, hooks, first_limit);
  Limit second_limit(steps, hooks.stop);
  Comparison comparison(experiment.model, reference);
  Transport* mesh = nullptr;  // lives as long as the run
  const RunHooks watched =
      Watch(hooks, experiment, steps, comparison, second_limit, mesh);
  const runlog::RunLog log =
      TrainRun(experiment, arm, seed, corpus, executor, watched);
  comparison.Moe(log.moe);
  report.transport = log.provenance.transport;
  report.processes = static_cast<size_t>(log.provenance.processes);
  report.interrupted = first_limit.interrupted() || second_limit.interrupted();
  comparison.FillIn(report);
  return report;
}

}  // namespace isoloss::train
