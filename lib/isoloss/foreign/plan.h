// Finds the step at which a run was to end, and lines that say it broke off.
#pragma once

#include <string>
#include <string_view>

#include "isoloss/foreign/foreign_run.h"

namespace isoloss::foreign {

/// Returns whether `words`, the text before a number, names the last step of a
/// whole run. Examples are "max_train_steps", "Number of training steps", and
/// "trainer.num_iterations". The second argument is the text after the number:
/// "training for" counts if "steps" follows, as in "training for 120 steps".
/// Steps per something, of a warm-up, an evaluation or a benchmark, or between
/// two actions do not count.
bool NamesPlan(std::string_view words, std::string_view behind = {});

/// Takes the run's planned end from its settings.
void TakePlan(ForeignRun& run);

/// Finds what a program or its scheduler prints if it stops before its end: the
/// name of an exception or a signal, an exit code but 0, ...; else returns "".
std::string FailureIn(std::string_view line);

}  // namespace isoloss::foreign
