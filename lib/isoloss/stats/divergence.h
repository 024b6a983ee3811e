// The step at which a run began to lose what it knew.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace isoloss::stats {

/// In hindsight, of a run that lost what it knew: mean losses of windows of a
/// tenth of `planned_steps`, one step apart. A window is bad if it
/// lies more than a tenth of what had been learnt until then above the least so
/// far, and more than 6 standard errors of a window's mean, by the median
/// second difference of the steps until the best window: what chance alone
/// makes of the least and the last of some hundred windows is less. The run
/// diverged at the first step of the first window from which on all are bad,
/// when its loss began to rise, or at its first loss that is not finite,
/// whichever is earlier. If it did not complete though all its losses are
/// finite, it diverged at its last step at the latest. Empty: it did not
/// diverge. `losses`: of steps 1, 2, …, nats. Special: no window in fewer steps
/// than one.
std::optional<int64_t> DivergedAt(std::span<const double> losses,
                                  int64_t planned_steps, bool complete);

}  // namespace isoloss::stats
