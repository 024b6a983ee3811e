// Verifies what follows the backward pass: gradient norm, clipping, learning
// rate, AdamW and the expert biases.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"
#include "isoloss/model/config.h"
#include "isoloss/model/parameters.h"
#include "isoloss/oracle/estimate.h"
#include "isoloss/oracle/sample.h"
#include "isoloss/runlog/run_log.h"
#include "isoloss/step_checks/report_sink.h"
#include "isoloss/step_checks/sampling.h"
#include "isoloss/step_checks/step_record.h"
#include "isoloss/train/config.h"

namespace isoloss::step_checks {

/// Returns the learning rate of a step (from 1) by the formulas of
/// docs/model.md, section 11.
double OracleLearningRate(const train::TrainConfig& train, int64_t step);

/// Holds what a step logged besides its tensors.
struct StepOutcome {
  runlog::StepRow row;
  /// They are the biases after the update and the counts of the step, [MoE
  /// layers, E].
  MatrixView<const float> expert_bias;
  MatrixView<const int64_t> tokens_per_expert;
  /// The rows that the log got of the step are compared, too; may be null.
  const runlog::RunLog* log = nullptr;
};

/// Follows a run from its first step. A sample has the same elements in all
/// steps, whose moments are known. Weights and biases are those that the run
/// announced. The announced gradients feed the moments in a double recursion,
/// with the error that FP32 storage may have accumulated.
class UpdateOracle {
 public:
  UpdateOracle(const model::ModelConfig& config,
               const train::TrainConfig& train,
               const model::ParameterSet& initial,
               const Sampling& sampling = {});

  /// Returns how many bytes an element that is seen takes in so many steps.
  static size_t BytesPerElement(int64_t steps);

  /// The next step to be checked uses these selection biases, [MoE layers, E].
  MatrixView<const float> expert_bias() const { return expert_bias_.view(); }

  /// Verifies the next step:
  ///   <module>_weight      the weights, rounded to `activations`;
  ///   <module>_parameter, _update   from the weights before;
  ///   grad_norm, lr        the logged figures, to FP32's precision;
  ///   layers.N.moe.router_expert_bias.
  /// Clipping and AdamW take the logged norm and rate. A step whose loss or
  /// norm is not finite must change nothing.
  /// Errors   FormatError if the step did not announce one of the tensors, or
  ///          `outcome` does not belong to the next step.
  void Check(const StepRecord& record, const StepOutcome& outcome,
             oracle::Grid activations, Executor& executor, ReportSink& sink);

 private:
  /// An Estimate whose noise is squared, since each weight has two of them.
  struct Number {
    double exact = 0.0;
    double bound = 0.0;
    double variance = 0.0;

    Number Scaled(double factor) const;
    Number Plus(const Number& b) const;
    /// Returns the result of `roundings` FP32 operations, of which the first
    /// gives this number.
    Number Rounded(double roundings = 1) const;
  };
  struct Tensor {
    std::string module;
    oracle::Sample sample;
    // The elements that are seen have these values, in the order of the sample.
    std::vector<float> parameter;
    /// They belong to the updates in remembered_.
    std::vector<std::vector<float>> gradients;
    /// They are empty as long as the gradients stand for them.
    std::vector<Number> first;
    std::vector<Number> second;
  };
  /// The step's factors and summands are computed in double and rounded to FP32
  /// once.
  struct Scalars {
    double decay;
    double beta1;
    double one_minus_beta1;
    double beta2;
    double one_minus_beta2;
    double step_size;
    double bias2_sqrt;
    double eps;
    double clip;
  };

  /// Moments take as much memory as 12 gradients, but many elements have few
  /// steps. So they follow anew from up to so many remembered gradients.
  static constexpr size_t kRemembered = 4;

  void CheckNorm(const StepRecord& record, const StepOutcome& outcome,
                 ReportSink& sink) const;
  void CheckBias(const StepOutcome& outcome, bool updated, ReportSink& sink);
  void CheckWeight(const StepRecord& record, const Tensor& tensor,
                   oracle::Grid activations, ReportSink& sink) const;
  void CheckTensor(const StepRecord& record, const Scalars* scalars,
                   Tensor& tensor, ReportSink& sink) const;
  bool StoresMoments() const {
    return keeps_moments_ || remembered_.size() == kRemembered;
  }
  void Remember(const Scalars& scalars);
  std::pair<Number, Number> MomentsOf(const Tensor& tensor, size_t i) const;
  static void Advance(const Scalars& scalars, float gradient, Number& first,
                      Number& second);
  static oracle::Estimate Updated(const Scalars& scalars, float parameter,
                                  const Number& first, const Number& second);
  Scalars ScalarsOf(const runlog::StepRow& row) const;

  const train::TrainConfig train_;
  const size_t dense_layers_;
  int64_t steps_ = 0;
  std::vector<Tensor> tensors_;
  /// These updates came first; there are none once moments are kept.
  std::vector<Scalars> remembered_;
  bool keeps_moments_ = false;
  Matrix<float> expert_bias_;
};

}  // namespace isoloss::step_checks
