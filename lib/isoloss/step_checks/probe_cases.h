// Defines the structured inputs of a probe: weights and sizes that show bugs
// which a plain run hides.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "isoloss/model/parameters.h"
#include "isoloss/train/experiment.h"

namespace isoloss::step_checks {

/// This case leaves the experiment as it is.
inline constexpr std::string_view kPlainCase = "plain";

/// A case covers one of these.
enum class ProbeScope {
  kSteps,       ///< every tensor of every step
  kExchange,    ///< the exchange's rows; none without experts
  kEvaluation,  ///< held-out losses
};

struct ProbeCase {
  std::string name;
  std::string purpose;  ///< one line for lists
  /// Changes sizes and switches; null leaves them as they are.
  void (*shape)(train::Experiment& experiment) = nullptr;
  /// Changes the initial weights; null leaves them as they are.
  void (*edit)(const model::ModelConfig& config,
               model::ParameterSet& weights) = nullptr;
  ProbeScope scope = ProbeScope::kSteps;
  int threads = 0;  ///< in the training executor; 0: the caller's executor
};

/// The cases are:
/// plain        as the experiment is;
/// hot_row      a row and a column of each of the layers' matrices * 2^12: a
///              block scale of a neighbour, or along the other axis, is far
///              off;
/// zero_block   a row and a block of 32 of each matrix are zero;
/// scale_edge   blocks whose largest magnitude is 448 * 2^k, one BF16 ulp less
///              and one more: a rounded-up scale changes between them;
/// router_ties  experts with equal gate rows, so that scores tie exactly, and
///              two that nearly nobody chooses;
/// exchange     as plain, for longer: a faulty exchange may spoil a row once in
///              a while (DeepEP issue 700: in 3 % of combines);
/// tails        widths and lengths that 32 does not divide; sequences of more
///              than one block of queries; one slot more per token; dense
///              layers whose rows are a multiple of 4 KiB; three threads;
/// branches     the other kind of scores (softmax or sigmoid); their sum,
///              expert groups and YaRN on if they were off, and off if on;
///              gradients that are clipped; expert biases that outweigh scores;
/// evaluation   as plain, but a batch of training is held out, and expert
///              biases are large.
const std::vector<ProbeCase>& ProbeCases();

/// Returns the case of that name.
/// Errors   ConfigError that lists the names.
const ProbeCase& ProbeCaseByName(const std::string& name);

}  // namespace isoloss::step_checks
