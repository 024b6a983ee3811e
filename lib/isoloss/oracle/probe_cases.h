// Structured inputs of a probe: weights and sizes at which bugs show that a
// plain run hides.
#pragma once

#include <string>
#include <vector>

#include "isoloss/model/parameters.h"
#include "isoloss/train/experiment.h"

namespace isoloss::oracle {

struct ProbeCase {
  std::string name;
  std::string purpose;  ///< one line for lists
  /// Changes sizes; null: as they are.
  void (*shape)(train::Experiment& experiment) = nullptr;
  /// Changes the initial weights; null: as they are.
  void (*edit)(const model::ModelConfig& config,
               model::ParameterSet& weights) = nullptr;
  /// Checks only what the exchange moves, in more steps. Left out of models
  /// without experts.
  bool exchange_only = false;
};

/// plain        as the experiment is
/// hot_row      a row and a column of each of the layers' matrices * 2^12: a
///              block scale of a neighbour, or along the other axis, is far off
/// zero_block   a row and a block of 32 of each matrix are zero
/// scale_edge   blocks whose largest magnitude is 448 * 2^k, one BF16 ulp less
///              and one more: both sides of where a rounded-up scale steps
/// router_ties  experts with equal gate rows, so that scores tie exactly, and
///              two that nearly nobody chooses
/// exchange     as plain, for longer: a faulty exchange may spoil a row once in
///              a while (DeepEP issue 700: in 3 % of combines)
/// tails        widths and lengths that 32 does not divide
const std::vector<ProbeCase>& ProbeCases();

/// Errors   ConfigError that lists the names.
const ProbeCase& ProbeCaseByName(const std::string& name);

}  // namespace isoloss::oracle
