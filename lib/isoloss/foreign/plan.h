// When a run was to end, and what says that it broke off before.
#pragma once

#include <string>
#include <string_view>

#include "isoloss/foreign/foreign_run.h"

namespace isoloss::foreign {

/// Whether the words before a number name the last step of a whole run:
/// "max_train_steps", "Number of training steps", "trainer.num_iterations", or
/// "training for" before "120 steps", which `behind` begins with. No steps per
/// something, of a warm-up, an evaluation, a benchmark, or between two actions.
bool NamesPlan(std::string_view words, std::string_view behind = {});

/// Makes the run's planned end the one that its settings tell.
void TakePlan(ForeignRun& run);

/// What a program or its scheduler prints where it stops before its end: the
/// name of an exception or a signal, an exit code but 0, ...; else "".
std::string FailureIn(std::string_view line);

}  // namespace isoloss::foreign
