// Reads from an experiment's two sweeps how the best learning rate depends on
// the width.
#pragma once

#include <string>

#include "isoloss/estimators/rate_exponent.h"
#include "isoloss/train/experiment.h"

namespace isoloss::studies {

/// Returns the exponent that [tuning] and [tuning.scaled] give.
/// Special  the assumed exponent with the reason, if a sweep is missing, was of
///          another configuration than `experiment` with `corpus` has, or shows
///          no optimum, or if train.lr is not near the best rate; further as
///          estimators::ExponentBetween.
estimators::RateExponent TunedExponent(const train::Experiment& experiment,
                                       const corpus::Corpus& corpus);

/// Returns the sentences that keep an arm from being safe at rates of an
/// assumed exponent, with the commands that measure it; empty if it is
/// measured.
std::string RateDoubt(const estimators::RateExponent& exponent,
                      const train::Experiment& experiment);

}  // namespace isoloss::studies
