// Measures how far two arms are apart at the end of training, seed by seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "isoloss/compare/pair.h"

namespace isoloss::compare {

/// Returns the number of steps in the last `share` of `steps`, rounded up; at
/// least 1 if steps > 0.
size_t WindowLength(size_t steps, double share);

/// Returns how many of the last logged steps stand for the last `share` of the
/// training, rounded up. A logged step stands for the steps since the one
/// before, and the first for as many as the second.
/// Shapes   steps ascends, and is not empty.
size_t RowsOfWindow(std::span<const int64_t> steps, double share);

/// The last steps of the final window have this share of all steps. A gap that
/// opens there hides in the mean of the window.
inline constexpr double kLastShare = 0.03;

/// Returns 100 (L_c - L_b) / L_b.
inline double PercentDifference(double candidate, double baseline) {
  return 100 * (candidate - baseline) / baseline;
}

/// Differences are candidate minus baseline for one seed, paired step by step.
/// In the means a logged step counts as often as the steps that it stands for.
struct SeedDifference {
  int64_t seed = 0;
  /// Level L5 tests final_window = mean over the window of (L_c - L_b) / L_b.
  double final_window = 0;
  /// held_out = (L_c - L_b) / L_b of the last held-out evaluation, if any.
  std::optional<double> held_out;
  std::optional<double> held_out_nats;  ///< L_c - L_b of that evaluation
  double final_window_nats = 0;         ///< mean over the window of L_c - L_b
  double last_steps = 0;       ///< as final_window, over the last kLastShare
  double last_steps_nats = 0;  ///< as final_window_nats, likewise
  /// The same over ever shorter ends of these last steps (FinalWindow::ends).
  std::vector<double> ends;
  std::vector<double> ends_nats;
  /// last_100_nats = mean of L_c - L_b over the last 100 steps (all, if fewer).
  double last_100_nats = 0;
  /// trajectory_rmse_nats = root of the mean of (L_c - L_b)^2 over all steps.
  double trajectory_rmse_nats = 0;
  /// The largest |L_c - L_b| is that of step `max_gap_step`.
  double max_gap_nats = 0;
  int64_t max_gap_step = 0;
};

struct FinalWindow {
  int64_t first_step = 0;
  int64_t last_step = 0;
  int64_t first_of_last_steps = 0;  ///< of the last kLastShare
  /// Ends of the last steps begin at these steps: each has half the logged
  /// steps of the one before, down to one.
  std::vector<int64_t> ends;
  /// Step of the last held-out evaluation; empty if there is none.
  std::optional<int64_t> held_out_step;
  size_t last_100_steps = 0;          ///< number of steps in last_100_nats
  std::vector<SeedDifference> seeds;  ///< ascending seed

  // Vectors have a value for each seed; those of held-out losses may be empty.
  std::vector<double> Percents() const;               ///< 100 final_window
  std::vector<double> Gaps() const;                   ///< final_window_nats
  std::vector<double> LastPercents() const;           ///< 100 last_steps
  std::vector<double> LastGaps() const;               ///< last_steps_nats
  std::vector<double> EndPercents(size_t end) const;  ///< 100 ends[end]
  std::vector<double> EndGaps(size_t end) const;      ///< ends_nats[end]
  std::vector<double> HeldOutPercents() const;
  std::vector<double> HeldOutGaps() const;
};

/// Requires runs that integrity rules `seeds` and `steps` found in order.
FinalWindow CompareFinalWindow(const Pairing& pairing, double window_share);

}  // namespace isoloss::compare
