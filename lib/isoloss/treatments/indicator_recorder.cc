#include "isoloss/treatments/indicator_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/error.h"
#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"
#include "isoloss/estimators/indicator.h"
#include "isoloss/estimators/indicator_record.h"
#include "isoloss/model/parameters.h"
#include "isoloss/model/transformer.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/probes/row_places.h"
#include "isoloss/probes/tensor_accumulator.h"
#include "isoloss/runlog/run_log.h"
#include "isoloss/stats/divergence.h"
#include "isoloss/stats/kurtosis.h"
#include "isoloss/train/mesh_setup.h"
#include "isoloss/treatments/chosen_experts.h"

namespace isoloss::treatments {
namespace {

using estimators::Indicator;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

/// Returns a mesh of one rank, with the run's dispatch units.
std::unique_ptr<expert_parallel::Mesh> OneRank(train::Experiment experiment,
                                               Executor& executor) {
  experiment.parallel.mesh.ranks = experiment.parallel.mesh.replicas = 1;
  experiment.parallel.transport = "loop";
  return train::MakeMesh(experiment, /*arm=*/{}, /*reason_folder=*/{},
                         executor);
}

/// Computes the same model in BF16, where the run computes.
class Bf16Model {
 public:
  Bf16Model(const train::Experiment& experiment, Executor& executor)
      : mesh_(OneRank(experiment, executor)),
        transformer_(experiment.model, precision::RecipeByName("bf16"),
                     executor, *mesh_),
        gradients_(experiment.model, executor.memory()) {}

  struct Findings {
    double gradient_to_noise = kNone;
    double flip_share = kNone;
  };

  Findings Compare(const train::StepInputs& inputs,
                   const ChosenExperts& experts,
                   const model::ParameterSet& gradients) {
    transformer_.LoadWeights(inputs.parameters);
    transformer_.LoadExpertBias(inputs.expert_bias);
    transformer_.SetRouting(&experts);
    transformer_.Forward(inputs.tokens);
    int64_t flips = 0;
    for (const model::RouterFigures& layer :
         transformer_.MergeRouterFigures()) {
      flips += layer.flips;
    }
    transformer_.Backward(inputs.tokens, gradients_);
    transformer_.RoundWeightGradients(gradients_);
    double squares = 0;
    double noise = 0;
    for (size_t i = 0; i < gradients_.parameters().size(); ++i) {
      const Matrix<float>& ours = gradients.parameters()[i].values;
      const HostRows<float> exact(gradients_.parameters()[i].values.cview(),
                                  gradients_.memory());
      for (size_t j = 0; j < ours.size(); ++j) {
        const auto value = static_cast<double>(ours.data()[j]);
        const double error =
            value - static_cast<double>(exact.view().data()[j]);
        squares += value * value;
        noise += error * error;
      }
    }
    if (noise == 0) return {};
    Findings findings;
    findings.gradient_to_noise = std::sqrt(squares / (3 * noise));
    if (experts.size() > 0) {
      findings.flip_share =
          static_cast<double>(flips) / static_cast<double>(experts.size());
    }
    return findings;
  }

 private:
  std::unique_ptr<expert_parallel::Mesh> mesh_;
  model::Transformer transformer_;
  model::ParameterSet gradients_;
};

/// Returns the kurtosis of the batch's rows, without those that fill lists up.
double KurtosisOf(const model::Tensor& tensor) {
  std::vector<float> elements;
  elements.reserve(tensor.values.rows() * tensor.values.cols());
  for (const probes::RowRun& run :
       probes::RunsOf(tensor.rows, tensor.values.rows())) {
    for (size_t row = run.begin; row < run.end; ++row) {
      const float* first = tensor.values.Row(row);
      elements.insert(elements.end(), first, first + tensor.values.cols());
    }
  }
  return stats::Kurtosis(elements);
}

class IndicatorRecorder {
 public:
  IndicatorRecorder(const train::Experiment& experiment, int64_t every,
                    std::filesystem::path file)
      : experiment_(experiment),
        every_(every),
        file_(std::move(file)),
        last_block_(fmt::format("layers.{}", experiment.model.n_layers - 1)) {}

  bool Wants(int64_t step) const { return step == 1 || step % every_ == 0; }

  void Begin(int64_t step, const train::StepInputs& inputs) {
    inputs_.reset();
    if (!Wants(step)) return;
    inputs_.emplace(inputs);
    experts_.Clear();
    record_ = {.step = step};
    record_.values.fill(kNone);
  }

  void Hear(const model::Tensor& tensor) {
    const bool residual = tensor.kind == model::TensorKind::kOutput &&
                          tensor.module == last_block_;
    const bool operand = tensor.kind == model::TensorKind::kActivation;
    const bool swiglu = operand && tensor.module.ends_with(".w2");
    if (!residual && !swiglu && !(operand && tensor.rowwise)) return;
    probes::TensorAccumulator sums;
    sums.Add(tensor, host_);
    const probes::TensorStatistics found = sums.Finish();
    if (residual || swiglu) {
      Raise(
          residual ? Indicator::kResidualKurtosis : Indicator::kSwigluKurtosis,
          KurtosisOf(tensor));
      Raise(residual ? Indicator::kResidualAmax : Indicator::kSwigluAmax,
            found.values[runlog::kStat_cur_amax]);
    }
    if (!operand) return;
    Raise(Indicator::kSaturation, found.values[runlog::kStat_saturated]);
    // NaN compares false, so a measured value stays.
    double& sqnr = At(Indicator::kSqnr);
    const double of_tensor = found.values[runlog::kStat_sqnr];
    if (std::isnan(sqnr) || of_tensor < sqnr) sqnr = of_tensor;
  }

  void HearRouting(MatrixView<const int32_t> ids) { experts_.Add(ids); }

  void Finish(int64_t step, const model::ParameterSet& gradients) {
    // A step may be computed once more, to find the value that was not finite.
    // It has been recorded already.
    if (!inputs_ || record_.step != step) return;
    if (!bf16_) Open(step);
    const Bf16Model::Findings findings =
        bf16_->Compare(*inputs_, experts_, gradients);
    At(Indicator::kGradientToNoise) = findings.gradient_to_noise;
    At(Indicator::kRoutingFlips) = findings.flip_share;
    inputs_.reset();
    records_.push_back(record_);
    WriteFileAtomically(file_, estimators::FormatRecords(records_));
  }

 private:
  double& At(Indicator indicator) {
    return record_.values[static_cast<size_t>(indicator)];
  }
  void Raise(Indicator indicator, double value) {
    double& most = At(indicator);
    if (std::isnan(most) || value > most) most = value;
  }

  /// This is called before the first step that this object records.
  void Open(int64_t step) {
    bf16_ = std::make_unique<Bf16Model>(experiment_, inputs_->executor);
    if (!std::filesystem::exists(file_)) {
      std::filesystem::create_directories(file_.parent_path());
      return;
    }
    // An earlier call's records of this step and later ones are made again.
    records_ = estimators::ReadRecords(file_);
    std::erase_if(records_, [&](const estimators::IndicatorRecord& record) {
      return record.step >= step;
    });
  }

  const train::Experiment experiment_;
  const int64_t every_;
  const std::filesystem::path file_;
  const std::string last_block_;
  Executor host_{1};  // of statistics, which are logging
  std::unique_ptr<Bf16Model> bf16_;
  std::optional<train::StepInputs> inputs_;
  ChosenExperts experts_;
  estimators::IndicatorRecord record_;
  std::vector<estimators::IndicatorRecord> records_;
};

}  // namespace

std::filesystem::path IndicatorFile(const std::filesystem::path& study,
                                    const std::string& cell,
                                    const std::string& run) {
  return study / kIndicatorFolder / cell / (run + ".csv");
}

train::RunHooks RecordIndicators(train::RunHooks hooks,
                                 const train::Experiment& experiment,
                                 int64_t every,
                                 const std::filesystem::path& file) {
  const auto recorder =
      std::make_shared<IndicatorRecorder>(experiment, every, file);
  hooks.on_inputs = [recorder](int64_t step, const train::StepInputs& inputs) {
    recorder->Begin(step, inputs);
  };
  hooks.hears = [recorder](int64_t step) { return recorder->Wants(step); };
  hooks.on_tensor = [recorder](int64_t, const model::Tensor& tensor) {
    recorder->Hear(tensor);
  };
  hooks.on_routing = [recorder](int64_t, std::string_view,
                                MatrixView<const int32_t> ids) {
    recorder->HearRouting(ids);
  };
  hooks.before_update = [recorder, before = hooks.before_update](
                            int64_t step, model::ParameterSet& gradients) {
    if (before) before(step, gradients);
    recorder->Finish(step, gradients);
  };
  return hooks;
}

estimators::IndicatorRun ReadIndicators(const std::string& mode,
                                        const runlog::RunLog& log,
                                        const std::filesystem::path& file) {
  estimators::IndicatorRun run{.mode = mode,
                               .arm = log.provenance.arm,
                               .seed = log.provenance.seed,
                               .steps = {},
                               .values = {}};
  const std::vector<double>& losses = log.steps.loss_nats;
  run.diverged_at = stats::DivergedAt(losses, log.provenance.steps_planned,
                                      log.provenance.complete);
  double least = std::numeric_limits<double>::infinity();
  size_t seen = 0;  // losses that `least` is of
  for (const estimators::IndicatorRecord& record :
       estimators::ReadRecords(file)) {
    const auto found = std::ranges::lower_bound(log.steps.step, record.step);
    if (found == log.steps.step.end() || *found != record.step) {
      ThrowError(ErrorKind::kFormat,
                 "{}: it holds step {}, but its run has {} steps. Remove the "
                 "study's folder and train it anew.",
                 file.string(), record.step, log.steps.step.size());
    }
    const auto place = static_cast<size_t>(found - log.steps.step.begin());
    estimators::IndicatorValues values;
    std::ranges::copy(record.values, values.begin());
    values[static_cast<size_t>(Indicator::kGradientNorm)] =
        log.steps.grad_norm[place];
    for (; seen <= place; ++seen) least = std::min(least, losses[seen]);
    values[static_cast<size_t>(Indicator::kLossRise)] = losses[place] - least;
    run.steps.push_back(record.step);
    run.values.push_back(values);
  }
  return run;
}

}  // namespace isoloss::treatments
