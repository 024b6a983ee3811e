// Modes of stress change an experiment, or its weights while it trains, in ways
// that low precision is known to suffer from.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/train/experiment.h"
#include "isoloss/train/run_hooks.h"
#include "isoloss/train/runner.h"

namespace isoloss::treatments {

struct StressMode {
  std::string_view name;    ///< "lr_10"
  std::string_view what;    ///< one sentence
  std::string_view source;  ///< who saw low precision suffer from it
  /// Changes the experiment; may be null.
  void (*change)(train::Experiment& experiment);
  /// Hooks of a run of the changed experiment; may be null.
  train::RunHooks (*hooks)(const train::Experiment& experiment);
};

/// Puts an experiment under a mode. Returns the hooks that its runs begin
/// with; empty if they need none.
std::function<train::RunHooks(const train::Run& run)> ApplyStress(
    const StressMode& mode, train::Experiment& experiment);

/// Returns all modes, the unstressed one first.
std::span<const StressMode> AllStressModes();

/// Errors   ConfigError that lists the modes if there is none of that name.
const StressMode& StressModeByName(std::string_view name);

}  // namespace isoloss::treatments
