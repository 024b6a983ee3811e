#include "isoloss/step_checks/precision_probe.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>

#include "isoloss/base/error.h"
#include "isoloss/model/routing_source.h"
#include "isoloss/step_checks/operand_figures.h"
#include "isoloss/step_checks/router_check.h"
#include "isoloss/train/arm_recipes.h"
#include "isoloss/train/logged_learner.h"
#include "isoloss/train/mesh_setup.h"

namespace isoloss::step_checks {
namespace {

constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();

/// Adds up inner products of two tensors, or of a part of them.
struct Products {
  double errors = 0.0;   // ||c - r||^2
  double squares = 0.0;  // ||r||^2
  double mixed = 0.0;    // <c, r>

  void Add(const float* candidate, const float* reference, size_t size) {
    for (size_t i = 0; i < size; ++i) {
      const auto c = static_cast<double>(candidate[i]);
      const auto r = static_cast<double>(reference[i]);
      errors += (c - r) * (c - r);
      squares += r * r;
      mixed += c * r;
    }
  }
  void Add(const Products& part) {
    errors += part.errors;
    squares += part.squares;
    mixed += part.mixed;
  }
  double RelativeError() const {
    if (errors == 0.0) return 0.0;
    return std::sqrt(errors) / std::sqrt(squares);
  }
};

/// Returns the ends of a tensor's groups of rows.
std::vector<size_t> GroupEnds(const RecordedTensor& tensor) {
  if (!tensor.begins.empty()) {
    return {tensor.begins.begin() + 1, tensor.begins.end()};
  }
  std::vector<size_t> ends;
  const size_t rows = tensor.values.rows();
  for (size_t end = 0; end < rows;) {
    ends.push_back(end = std::min(rows, end + kGroupRows));
  }
  return ends;
}

void RequireSameExtent(const RecordedTensor& candidate,
                       const RecordedTensor& reference) {
  const Matrix<float>& c = candidate.values;
  const Matrix<float>& r = reference.values;
  if (c.rows() == r.rows() && c.cols() == r.cols() &&
      candidate.begins == reference.begins) {
    return;
  }
  ThrowError(ErrorKind::kShape,
             "precision probe: {} is {}x{} in {} groups of rows in the "
             "candidate, but {}x{} in {} in the reference. Give both arms the "
             "same expert_padding.",
             candidate.name, c.rows(), c.cols(), candidate.begins.size(),
             r.rows(), r.cols(), reference.begins.size());
}

/// Replays the experts that a recorded step chose.
class RecordedRouting : public model::RoutingSource {
 public:
  RecordedRouting(const StepRecord& record, size_t dense_layers)
      : record_(record), dense_layers_(dense_layers) {}

  void Choose(size_t layer, size_t token,
              std::span<int32_t> expert_ids) const override {
    const MatrixView<const int32_t> ids = record_.ExpertIds(RouterName(layer));
    std::copy_n(ids.Row(token), expert_ids.size(), expert_ids.begin());
  }
  /// Returns the router's name; MoE layers are numbered from 0.
  std::string RouterName(size_t layer) const {
    return "layers." + std::to_string(layer + dense_layers_) + ".moe.router";
  }

 private:
  const StepRecord& record_;
  const size_t dense_layers_;
};

train::RunHooks Listening(train::RunHooks hooks, StepRecord& record) {
  const auto on_tensor = hooks.on_tensor;
  const auto on_routing = hooks.on_routing;
  hooks.on_tensor = [&record, on_tensor](int64_t step,
                                         const model::Tensor& tensor) {
    if (on_tensor) on_tensor(step, tensor);
    record.OnTensor(tensor);
  };
  hooks.on_routing = [&record, on_routing](int64_t step,
                                           std::string_view module,
                                           MatrixView<const int32_t> ids) {
    if (on_routing) on_routing(step, module, ids);
    record.OnRouting(module, ids, 0);
  };
  return hooks;
}

/// Returns the mesh of an arm whose ranks share one process.
std::unique_ptr<expert_parallel::Mesh> MakeWholeMesh(
    const train::Experiment& experiment, const train::Arm& arm,
    Executor& executor, const train::RunHooks& hooks) {
  auto mesh = train::MakeMesh(experiment, arm, /*reason_folder=*/{}, executor,
                              hooks.make_transport);
  if (mesh->processes() > 1) {
    ThrowError(ErrorKind::kConfig,
               "precision probe: {} processes share the ranks, but one must "
               "hold them all. Use the transport `loop`.",
               mesh->processes());
  }
  mesh->exchanges().Decorate(hooks.decorate_exchange);
  return mesh;
}

/// Trains an arm and records what its last step announced.
class ProbedArm {
 public:
  ProbedArm(const train::Experiment& experiment, const train::Arm& arm,
            uint64_t seed, const corpus::Corpus& corpus, Executor& executor,
            const train::RunHooks& hooks)
      : hooks_(Listening(hooks, record_)),
        mesh_(MakeWholeMesh(experiment, arm, executor, hooks)),
        learner_(experiment, arm, seed, corpus, executor, hooks_, {}, *mesh_) {}
  ProbedArm(const ProbedArm&) = delete;
  ProbedArm& operator=(const ProbedArm&) = delete;

  train::LoggedLearner& learner() { return learner_; }
  const StepRecord& record() const { return record_; }

  /// Returns false if the step was not finite.
  bool Step(int64_t step) {
    record_.Clear();
    runlog::RunLog rows;
    return learner_.Step(step, rows);
  }

 private:
  StepRecord record_;
  const train::RunHooks hooks_;
  std::unique_ptr<expert_parallel::Mesh> mesh_;
  train::LoggedLearner learner_;
};

/// Returns the share of recorded (token, slot) pairs that the router would not
/// have chosen by the scores that it announced.
double FlipShare(const StepRecord& record, const model::ModelConfig& config,
                 const std::string& router, std::span<const float> bias) {
  const Matrix<float>& scores = record.At(router + ".scores_output").values;
  const MatrixView<const int32_t> ids = record.ExpertIds(router);
  size_t flips = 0;
  for (size_t t = 0; t < ids.rows(); ++t) {
    const std::vector<int32_t> own =
        ChooseExperts(config, {scores.Row(t), scores.cols()}, bias);
    for (size_t k = 0; k < ids.cols(); ++k) {
      if (std::find(own.begin(), own.end(), ids(t, k)) == own.end()) ++flips;
    }
  }
  return static_cast<double>(flips) /
         static_cast<double>(ids.rows() * ids.cols());
}

void CheckSteps(const train::Experiment& experiment,
                std::span<const int64_t> steps) {
  int64_t before = 0;
  for (const int64_t step : steps) {
    if (step <= before || step > experiment.train.steps) {
      ThrowError(ErrorKind::kConfig,
                 "precision probe: step {} follows step {}, but steps must "
                 "ascend from 1 to the run's {}. Choose others.",
                 step, before, experiment.train.steps);
    }
    before = step;
  }
}

/// Compares two records and appends the rows.
class Findings {
 public:
  explicit Findings(PrecisionFindings& findings) : findings_(findings) {}

  void Add(int64_t step, const StepRecord& candidate,
           const StepRecord& reference) {
    for (const RecordedTensor* tensor : reference.tensors()) {
      runlog::PrecisionRow row =
          CompareTensors(candidate.At(tensor->name), *tensor);
      row.step = step;
      row.tensor = PlaceOf(tensor->name);
      findings_.precision.Append(row);
    }
  }
  void AddFlips(int64_t step, int64_t layer, double share) {
    findings_.routing_flips.step.push_back(step);
    findings_.routing_flips.layer.push_back(layer);
    findings_.routing_flips.flip_share.push_back(share);
  }

 private:
  int64_t PlaceOf(const std::string& tensor) {
    const auto [found, added] = places_.try_emplace(
        tensor, static_cast<int64_t>(findings_.tensors.size()));
    if (added) findings_.tensors.push_back(tensor);
    return found->second;
  }

  PrecisionFindings& findings_;
  std::map<std::string, int64_t> places_;
};

}  // namespace

runlog::PrecisionRow CompareTensors(const RecordedTensor& candidate,
                                    const RecordedTensor& reference) {
  RequireSameExtent(candidate, reference);
  runlog::PrecisionRow row = {.saturated = kNotMeasured,
                              .underflows = kNotMeasured};
  const size_t width = reference.values.cols();
  Products all;
  size_t begin = 0;
  for (const size_t end : GroupEnds(reference)) {
    Products group;
    for (size_t r = begin; r < end; ++r) {
      group.Add(candidate.values.Row(r), reference.values.Row(r), width);
    }
    all.Add(group);
    const double error = group.RelativeError();
    // NaN stays, whatever follows.
    if (!(row.worst_group_error >= error) &&
        !std::isnan(row.worst_group_error)) {
      row.worst_group_error = error;
    }
    begin = end;
  }
  row.relative_error = all.RelativeError();
  row.gain = all.squares == 0.0 ? kNotMeasured : all.mixed / all.squares - 1.0;
  if (!candidate.quantized_rowwise && !candidate.quantized_columnwise) {
    return row;
  }
  const OperandFigures figures =
      FiguresOf(candidate, SegmentsOf(candidate, /*lists=*/nullptr),
                /*down=*/!candidate.quantized_rowwise);
  const auto size = static_cast<double>(candidate.values.size());
  row.saturated = size > 0 ? 100.0 * figures.saturated / size : 0.0;
  row.underflows = size > 0 ? 100.0 * figures.underflows / size : 0.0;
  return row;
}

void CheckReference(const train::Experiment& experiment,
                    const train::Arm& reference,
                    std::span<const int64_t> steps) {
  CheckSteps(experiment, steps);
  if (!train::QuantizesAnything(reference)) return;
  ThrowError(ErrorKind::kConfig,
             "precision probe: the reference `{}` has the recipe {}, which "
             "quantises, but it must be in high precision. Name a BF16 arm.",
             reference.name, train::RecipeNames(reference));
}

PrecisionFindings ProbePrecision(const train::Experiment& experiment,
                                 const train::Arm& candidate,
                                 const train::Arm& reference, uint64_t seed,
                                 const corpus::Corpus& corpus,
                                 std::span<const int64_t> steps,
                                 Executor& executor,
                                 const train::RunHooks& hooks) {
  CheckReference(experiment, reference, steps);
  const model::ModelConfig& config = experiment.model;
  ProbedArm teacher(experiment, reference, seed, corpus, executor, {});
  const RecordedRouting routing(teacher.record(), config.n_dense_layers);
  train::RunHooks replaying = hooks;
  replaying.routing = &routing;
  ProbedArm pupil(experiment, candidate, seed, corpus, executor, replaying);

  PrecisionFindings result;
  Findings findings(result);
  int64_t step = 0;
  for (const int64_t probed : steps) {
    while (++step < probed) {
      if (!teacher.Step(step)) return result;
    }
    pupil.learner().GoOnFrom(teacher.learner().State());
    Matrix<float> bias(config.n_moe_layers(), config.num_experts);
    const MatrixView<float> now = pupil.learner().State().expert_bias;
    for (size_t layer = 0; layer < bias.rows(); ++layer) {
      std::copy_n(now.Row(layer), bias.cols(), bias.Row(layer));
    }
    const bool finite = teacher.Step(step);
    pupil.Step(step);
    findings.Add(step, pupil.record(), teacher.record());
    const bool learned =
        experiment.routing.mode == model::RoutingMode::kLearned;
    for (size_t layer = 0; learned && layer < bias.rows(); ++layer) {
      findings.AddFlips(
          step, static_cast<int64_t>(layer),
          FlipShare(pupil.record(), config, routing.RouterName(layer),
                    {bias.Row(layer), bias.cols()}));
    }
    if (!finite) break;
  }
  return result;
}

}  // namespace isoloss::step_checks
