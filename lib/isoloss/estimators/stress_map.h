// Maps recipes under stress: which diverge, how large their gaps are, and
// whether bad recipes are told apart from a good one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace isoloss::estimators {

inline constexpr double kStressConfidence = 0.95;  ///< of all intervals

/// Only the end of a run counts.
struct StressRun {
  int64_t seed = 0;
  bool diverged = false;  ///< stats::DivergedAt
  /// The held-out loss at the end, nats. It is empty if it is not finite.
  std::optional<double> loss = std::nullopt;
};

/// These are the runs of one arm in one mode.
struct ArmRuns {
  std::string arm;
  std::vector<StressRun> runs;
};

/// A mode of stress has the runs of all arms.
struct StressedRuns {
  std::string mode;
  std::vector<ArmRuns> arms;  ///< the baseline is among them
};

/// These are the results of one arm in one mode.
struct StressResult {
  std::string mode;
  std::string arm;
  int64_t seeds = 0;
  int64_t diverged = 0;
  double diverged_lower = 0;  ///< Clopper-Pearson, 95 %
  double diverged_upper = 1;
  /// The mean difference to the baseline in nats, with its 95 % t interval,
  /// over the seeds whose runs both ended. It is empty with fewer than two
  /// such seeds, and for the baseline.
  std::optional<double> gap = std::nullopt;
  double gap_lower = 0;
  double gap_upper = 0;
  int64_t gap_seeds = 0;
  /// These are p-values for the arm being worse than the reference. The first
  /// tests whether it diverges more often (Fisher, one-sided). The second
  /// tests whether its losses on the same seeds are higher (paired t,
  /// one-sided). Both are 1 if nothing can be compared.
  double p_diverges = 1;
  double p_worse = 1;
};

/// Says whether a recipe that is known to be bad is told apart from the
/// reference.
struct Separation {
  std::string arm;
  std::string mode;  ///< that shows it best
  std::string by;    ///< "divergence" or "loss"
  /// The least p-value times the number of tests of all arms that are known to
  /// be bad (Bonferroni), at most 1.
  double p = 1;
  bool separated = false;  ///< p < kSeparates
};
inline constexpr double kSeparates = 0.01;

struct StressMap {
  std::string experiment = {};
  std::string baseline = {};
  std::string reference = {};  ///< the good recipe
  std::vector<std::string> modes = {};
  std::vector<std::string> arms;      ///< the baseline has no gaps
  std::vector<StressResult> results;  ///< mode by mode, arm by arm
  std::vector<Separation>
      separations;  ///< of the arms that are known to be bad
  std::vector<std::string> notes = {};

  const StressResult& At(size_t mode, size_t arm) const {
    return results[mode * arms.size() + arm];
  }
  /// Returns the arm's place in `arms`.
  size_t ArmIndex(const std::string& arm) const;
  bool SeparatesAny() const;
};

/// Errors   ConfigError if a mode lacks the baseline or the reference, or the
///          modes have not the same arms.
StressMap MakeStressMap(const std::vector<StressedRuns>& runs,
                        const std::string& baseline,
                        const std::string& reference,
                        const std::vector<std::string>& known_bad);

}  // namespace isoloss::estimators
