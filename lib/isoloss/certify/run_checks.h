// Checks that runs may be compared, and that they are whole.
#pragma once

#include <cstddef>

#include "isoloss/certify/certificate.h"

namespace isoloss::certify {

/// Runs with other settings than the first one are invalid.
void CheckSettings(size_t place, Certificate& certificate);
/// A copy of a log is no second run.
void CheckCopies(size_t place, Certificate& certificate);
/// All ranks must be there, and logs of one kind.
void CheckFiles(Certificate& certificate);
/// A run that did not end says nothing of its last state.
void CheckEnded(Certificate& certificate);

}  // namespace isoloss::certify
