// Trains a student that imitates a teacher: the small model by which arXiv
// 2506.20752 explains instabilities of MX formats.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "isoloss/estimators/claim.h"
#include "isoloss/estimators/claim_judge.h"

namespace isoloss::treatments {

/// Returns the arms of a student: "fp32" quantises nothing, "exempt" both
/// operands of all products, and "quantised" the gains of norms, too.
std::span<const std::string_view> StudentArms();

/// Trains a residual perceptron on the outputs of a teacher of its seed for
/// normal inputs. Returns its held-out losses after each tenth of the steps:
///   a_k = a_(k-1) + W2 relu(W1 (norm(a_(k-1)) * gain)), a_0 = x,
/// with layer norms (eps 1e-5, no bias). The loss is |a_K - t|^2 / width, the
/// mean over the batch; t is the teacher's output plus normal noise. The
/// teacher has no norms and is not quantised. AdamW runs without decay, at a
/// constant rate, in FP32. Weights begin uniform within 1 / sqrt(inputs), the
/// teacher's normal with deviation 0.5 sqrt(2 / (inputs + outputs)), gains as
/// 1.
///
/// Special  a loss that is not finite, of training or held out, ends it and is
///          left out: `diverged`, as is a run that loses what it knew
///          (stats::DivergedAt). `go_on` is called before
///          each step; once it says no, the result means nothing.
/// Errors   ConfigError if there is no such arm.
/// Exact    a function of the arguments but `go_on`.
/// Source   arXiv 2506.20752, section 4, whose layers these are; gains and
///          widths are smaller here.
estimators::RunCurve TrainStudent(const estimators::Student& student,
                                  std::string_view arm, uint64_t seed,
                                  const std::function<bool()>& go_on);

}  // namespace isoloss::treatments
