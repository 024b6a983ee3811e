// Gives an overview of one arm in a few numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/compare/pair.h"

namespace isoloss::compare {

/// These fields identify one run in a report.
struct RunRecord {
  std::string file;
  int64_t seed = 0;
  int64_t steps = 0;
  bool complete = false;
  std::string initial_weights_digest;
  std::string final_weights_digest;
};

/// The numbers are means over seeds; "final" is the mean over the final window.
/// A quantity is empty if no run of the arm logged it, and not finite if it is
/// not in one run. Damaged logs are accepted, because a report shows them, too.
struct ArmSummary {
  std::string arm;
  std::string recipe;
  std::string exchange;  ///< "" if the log does not name it
  std::vector<RunRecord> runs;
  std::optional<double> final_loss_nats;
  std::optional<double> held_out_loss_nats;  ///< last evaluation
  std::optional<double> final_grad_norm;
  std::optional<double> final_load_max_over_mean;
  std::optional<double> final_dead_experts;
  std::optional<double> steps_per_second;  ///< of one run, over all steps
  int64_t quantized_gemms_per_step = 0;
  int64_t gemms_per_step = 0;
  /// percent_below_unigram = 100 (1 - final loss / entropy of the corpus' byte
  /// or token frequencies).
  std::optional<double> percent_below_unigram;
  /// percent_above_floor = 100 (final loss / synthetic source's entropy rate -
  /// 1).
  std::optional<double> percent_above_floor;
};

ArmSummary SummarizeArm(const std::string& arm,
                        const std::vector<const Run*>& runs,
                        double window_share);

/// Returns a warning if a verdict on this arm says little, because its final
/// loss is not below the corpus' unigram entropy. Else returns "".
std::string LearningWarning(const ArmSummary& summary);

}  // namespace isoloss::compare
