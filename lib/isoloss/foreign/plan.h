// Finds the step at which a run was to end, and lines that say it broke off.
#pragma once

#include <string>
#include <string_view>

#include "isoloss/foreign/foreign_run.h"

namespace isoloss::foreign {

/// Returns whether the words before a number name the last step of a whole run:
/// "max_train_steps", "Number of training steps", "trainer.num_iterations", or
/// "training for" before "120 steps", with which `behind` begins. Steps per
/// something, of a warm-up, an evaluation or a benchmark, or between two
/// actions do not count.
bool NamesPlan(std::string_view words, std::string_view behind = {});

/// Takes the run's planned end from its settings.
void TakePlan(ForeignRun& run);

/// Finds what a program or its scheduler prints if it stops before its end: the
/// name of an exception or a signal, an exit code but 0, ...; else returns "".
std::string FailureIn(std::string_view line);

}  // namespace isoloss::foreign
