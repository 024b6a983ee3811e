// Trains what a new experiment is to say of its learning rate and its control.
#pragma once

#include "isoloss/campaign/run_cost.h"
#include "isoloss/init/experiment_text.h"
#include "isoloss/train/experiment.h"

namespace isoloss::init {

/// Sweeps the learning rate of the experiment in a temporary folder, and puts
/// the best one into `text`. Returns false if a signal came.
bool TuneRate(const train::Experiment& experiment,
              const campaign::ArmRates& rates, ExperimentText& text);

/// Grades the control, if there is one, in a temporary folder, and puts its
/// parts into `text`. It does so only if half of the budget trains the parts,
/// and if the budget holds the oracle and the fewest seeds of all arms then.
/// Units    seconds. Returns false if a signal came.
bool GradeControl(const train::Experiment& experiment, campaign::ArmRates rates,
                  double budget, double oracle, ExperimentText& text);

}  // namespace isoloss::init
