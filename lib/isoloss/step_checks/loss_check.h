// Verifies cross-entropy: token losses, their mean, and the logits' gradient.
#pragma once

#include <vector>

#include "isoloss/step_checks/step_inputs.h"

namespace isoloss::step_checks {

/// The log's mean loss is compared under this name, as a tensor of one element.
inline constexpr const char* kMeanLoss = "loss_mean";

/// Compares the losses, lm_head's gradient and loss_mean with
///   loss = ln S + (m - x_label), S = sum e^(x_j - m), m = max x;
///   lm_head gradient = round((softmax - onehot) / N), N labels that count.
/// Bounds   x_j - m is rounded once, which changes e^(x_j - m) by that much of
///          itself; exp and ln are within 2 ulp (kernels' promise, 4 unit
///          roundoffs); S by gamma_V, and ln S by S's relative error.
void CheckLoss(const StepInputs& inputs, ReportSink& sink);

}  // namespace isoloss::step_checks
