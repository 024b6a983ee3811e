// Finds the step at which a run diverged.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace isoloss::stats {

/// Returns the step at which a run diverged, in hindsight, or nothing if it did
/// not. `losses` belong to steps 1, 2, …, in nats.
///
/// Windows of a tenth of `planned_steps` are one step apart. A window is bad if
/// its mean loss exceeds the least one so far by more than two limits. The
/// first limit is a tenth of what had been learnt until then. The second is 6
/// standard errors of a window's mean, by the median second difference of the
/// steps until the best window. Chance alone makes a smaller difference between
/// the least and the last of some hundred windows.
///
/// The run diverged at the first step of the first window from which on all are
/// bad, where its loss began to rise. A first loss that is not finite counts if
/// it is earlier. A run that did not complete though all its losses are finite
/// diverged at its last step at the latest.
/// Special  no window in fewer steps than one.
std::optional<int64_t> DivergedAt(std::span<const double> losses,
                                  int64_t planned_steps, bool complete);

}  // namespace isoloss::stats
