// Knows how Hugging Face's Trainer hides losses that are no number.
#pragma once

#include <cstdint>
#include <optional>

#include "isoloss/foreign/foreign_run.h"

namespace isoloss::foreign {

/// Returns whether the loss stands for NaN: the trainer's NaN filter writes 0
/// for a window of only NaN.
bool IsFilteredLoss(double loss, std::optional<double> grad_norm);

/// Tells of the filter, and how many losses it hid.
void AddFilterNotes(int64_t filtered, ForeignRun& run);

}  // namespace isoloss::foreign
